"""Inference: from images to what and where."""

from whatwhere.inference.auto_lam import resolve_lam
from whatwhere.inference.infer import infer
from whatwhere.inference.learned_steps import LearnedSteps
from whatwhere.inference.tiled import infer_tiled
from whatwhere.inference.unrolled import UnrolledInference, distill

__all__ = [
    "LearnedSteps",
    "UnrolledInference",
    "distill",
    "infer",
    "infer_tiled",
    "resolve_lam",
]
