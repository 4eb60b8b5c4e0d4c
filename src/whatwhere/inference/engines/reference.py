"""The reference engine: Algorithm 1 in plain PyTorch. It serves everywhere, in every dtype, and is the truth."""

from __future__ import annotations

from torch import Tensor

from whatwhere.inference.filter_map import FilterMap as filter_map
from whatwhere.inference.ista import solve
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase

__all__ = ["filter_map", "solve", "unsupported_reason"]


def unsupported_reason(model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> str | None:
    """Why this engine cannot serve: it always can."""
    return None
