"""Inference: from images to what and where."""

from whatwhere.inference.auto_lam import noise_level, resolve_lam
from whatwhere.inference.infer import infer
from whatwhere.inference.tiled import infer_tiled

__all__ = ["infer", "infer_tiled", "noise_level", "resolve_lam"]
