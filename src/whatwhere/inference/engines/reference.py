"""The reference engine: Algorithm 1 in plain PyTorch. It runs on every device, in every dtype, and is the truth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from whatwhere.inference import ista
from whatwhere.inference.checks import check_filter_problem, check_problem
from whatwhere.inference.filter_map import FilterMap
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
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
        check_problem(model, images, latents, phase, mask)
        with flushed_denormals():
            return ista.solve(model, images, latents, phase, spec, mask)

    def filter_map(
        self, model: DeconvNet, k: int, images: Tensor, latents: Latents, mask: Tensor | None = None
    ) -> FilterMap:
        check_filter_problem(model, k, images, latents, mask)
        return FilterMap(model, k, images, latents, mask)

    def unsupported_reason(self, model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> str | None:
        """None: it supports every problem."""
        return None


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Numbers too small to be normal count as 0, since some processors take a hundred times as long for them.

    The setting belongs to the calling thread, and is afterwards as it was.
    """
    already = float(torch.tensor([1e-40]) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)
