"""The explorer: a page on which anyone draws an image, watches inference explain it, and moves the explanation."""
