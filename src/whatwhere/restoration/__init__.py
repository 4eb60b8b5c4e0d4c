"""Restore images: remove noise, and fill in missing parts (docs/explanation/restoration.md)."""

from whatwhere.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
