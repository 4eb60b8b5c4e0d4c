"""Recordings: waveforms learned from a recording, and the times at which they occur."""

from whatwhere.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
