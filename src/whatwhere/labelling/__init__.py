"""Label pictures: a session that suggests the next one, its tables and its page."""

from whatwhere.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
