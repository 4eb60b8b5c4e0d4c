"""The model: filters and connectivity, reconstruction down and propagation up."""

from whatwhere.model.deconvnet import DeconvNet, Objective
from whatwhere.model.files import load, save

__all__ = ["DeconvNet", "Objective", "load", "save"]
