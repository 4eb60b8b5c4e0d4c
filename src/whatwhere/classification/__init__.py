"""Classify pictures: descriptors, a graph for few labels, linear SVMs, and the protocol that
evaluates them."""

from whatwhere.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
