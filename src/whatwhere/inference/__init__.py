"""Inference: from images to what and where."""

from whatwhere.inference.infer import infer

__all__ = ["infer"]
