"""Find pictures that are unlike normal ones, and the places where they differ."""

from whatwhere.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
