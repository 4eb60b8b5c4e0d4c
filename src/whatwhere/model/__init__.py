"""The model: filters and connectivity, reconstruction down and propagation up."""

from whatwhere.model.deconvnet import DeconvNet
from whatwhere.model.files import load as load  # by path alone; `whatwhere.load` knows names too
from whatwhere.model.files import save
from whatwhere.model.problem import Problem
from whatwhere.model.sized import Objective, SizedModel

__all__ = ["DeconvNet", "Objective", "Problem", "SizedModel", "save"]
