"""The reference engine: Algorithm 1 in plain PyTorch. It runs on every device, in every dtype, and is the truth."""

from __future__ import annotations

from torch import Tensor

from whatwhere.inference import ista
from whatwhere.inference.filter_map import FilterMap
from whatwhere.latents import Latents, Solution
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase


class ReferenceEngine:
    """`ista.solve` and `FilterMap` as they are."""

    name = "reference"

    def solve(
        self,
        model: DeconvNet,
        images: Tensor,
        latents: Latents,
        phase: Phase,
        spec: InferenceSpec,
        mask: Tensor | None = None,
    ) -> Solution:
        return ista.solve(model, images, latents, phase, spec, mask)

    def filter_map(
        self, model: DeconvNet, k: int, images: Tensor, latents: Latents, mask: Tensor | None = None
    ) -> FilterMap:
        return FilterMap(model, k, images, latents, mask)

    def unsupported_reason(self, model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> str | None:
        """None: it supports every problem."""
        return None
