"""Views: descriptions of a picture, and of each place in it, that several uses share.

A view is a value with a name, a cost and `rows(images)`. Its maps describe each place of a picture.
"""

from whatwhere.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
