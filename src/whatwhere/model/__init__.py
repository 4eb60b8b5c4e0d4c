"""The model: filters and connectivity, reconstruction down and propagation up."""

from whatwhere.model.deconvnet import DeconvNet
from whatwhere.model.files import load, save
from whatwhere.model.sized import Objective, SizedModel

__all__ = ["DeconvNet", "Objective", "SizedModel", "load", "save"]
