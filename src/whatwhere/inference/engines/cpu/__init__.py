"""The fast engine on the CPU: one image's whole state stays in cache through all steps; threads share the images.

docs/engines/cpu.md explains it. Results do not depend on the number of threads.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from whatwhere.inference.checks import check_filter_problem, check_problem, require_supported
from whatwhere.inference.filter_map import LinearMap
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.spec import InferenceSpec, Phase

__all__ = ["CPUEngine"]


class CPUEngine:
    """The steps of `ista.solve` as machine code that Numba compiles on first use."""

    name = "cpu"

    def solve(
        self,
        model: DeconvNet,
        images: Tensor,
        latents: Latents,
        phase: Phase,
        spec: InferenceSpec,
        mask: Tensor | None = None,
    ) -> Solution:
        """Run all steps of one phase for one batch of images."""
        from whatwhere.inference.engines.cpu.batch_solver import BatchSolver  # here: importing Numba takes a second

        check_problem(model, images, latents, phase, mask)
        require_supported(self.name, self.unsupported_reason(model, images, phase, spec))
        images, latents, mask = detached(images, latents, mask)
        return BatchSolver(model, images, latents, phase, spec, mask).solve()

    def filter_map(
        self, model: DeconvNet, k: int, images: Tensor, latents: Latents, mask: Tensor | None = None
    ) -> LinearMap:
        """The same as `inference.filter_map.FilterMap`, faster."""
        from whatwhere.inference.engines.cpu.filters import CPUFilterMap

        phase = check_filter_problem(model, k, images, latents, mask)
        require_supported(self.name, self.unsupported_reason(model, images, phase, InferenceSpec()))
        images, latents, mask = detached(images, latents, mask)
        return CPUFilterMap(model, k, images, latents, mask)

    def unsupported_reason(self, model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> str | None:
        """Why this engine does not support the problem; None if it does."""
        if importlib.util.find_spec("numba") is None:
            return "it needs the package numba (pip install 'whatwhere[cpu]')"
        if images.device.type != "cpu" or model.device.type != "cpu":
            return f"images on {images.device} and filters on {model.device} were given, it needs both on the CPU"
        if images.dtype not in (torch.float32, torch.float64) or images.dtype != model.dtype:
            return f"{images.dtype} images and {model.dtype} filters were given, it needs float32 or float64 for both"
        return None


def detached(images: Tensor, latents: Latents, mask: Tensor | None) -> tuple[Tensor, Latents, Tensor | None]:
    """The same tensors without their gradients, which the kernels do not compute."""
    return images.detach(), latents.map(Tensor.detach), None if mask is None else mask.detach()
