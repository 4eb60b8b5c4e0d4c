"""The fast engine on the CPU: one image's whole state stays in cache through all steps; threads
share the images.

docs/engines/cpu.md explains it. Results do not depend on the number of threads.
"""

import importlib.util

import torch

from whatwhere.engines.base import LinearMap, require_supported
from whatwhere.model import Problem
from whatwhere.model.solution import Solution

__all__ = ["CPUEngine", "GreedyEngine"]


class CPUEngine:
    """The steps of `ista.solve` as machine code that Numba compiles on first use."""

    name = "cpu"
    converges = False

    def solve(self, problem: Problem) -> Solution:
        """Run all steps of one phase for one batch of images."""
        from whatwhere.engines.cpu.batch_solver import (
            BatchSolver,  # here: importing Numba takes a second
        )

        require_supported(self.name, self.unsupported_reason(problem))
        return BatchSolver(problem.detach()).solve()

    def filter_map(self, problem: Problem, k: int) -> LinearMap:
        """The same as `inference.filter_map.FilterMap`, faster."""
        from whatwhere.engines.cpu.filters import CPUFilterMap

        problem.require_latents(k)
        require_supported(self.name, CPUEngine.unsupported_reason(self, problem))
        return CPUFilterMap(problem.detach(), k)

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Why this engine does not support the problem; None if it does."""
        if importlib.util.find_spec("numba") is None:
            return "it needs the package numba (pip install 'whatwhere[cpu]')"
        model = problem.model
        if model.device.type != "cpu":
            return f"images and filters on {model.device} were given, it needs both on the CPU"
        if model.dtype not in (torch.float32, torch.float64):
            return (
                f"{model.dtype} images and filters were given, it needs float32 or float64 for both"
            )
        if any(layer.pool_maps > 1 for layer in model.spec.layers[: problem.phase.layer]):
            return "regions of several maps (pool_maps > 1) are pooled by the reference only"
        return None


class GreedyEngine(CPUEngine):
    """Converged codes of signals without pooling, by coordinate descent in place of steps."""

    name = "greedy"
    converges = True

    def solve(self, problem: Problem) -> Solution:
        """The codes to `tolerance`, in at most `steps` sweeps."""
        from whatwhere.engines.cpu.greedy import solve

        require_supported(self.name, self.unsupported_reason(problem))
        return solve(problem.detach())

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Why this engine does not support the problem; None if it does."""
        spec, layer = problem.spec, problem.model.spec.layers[0]
        if (
            problem.phase.layer > 1
            or layer.pool_shape != (1, 1)
            or layer.strides != (1, 1)
            or layer.pool_maps > 1
        ):
            return "it needs one layer without pooling (pool_size = 1)"
        if problem.images.shape[2] != 1 or layer.filter_shape[0] != 1:
            return "it needs signals, images of height 1"
        if (
            spec.tolerance == 0
            or spec.alpha != 1
            or spec.schedule is not None
            or not problem.model.tied
        ):
            return (
                "it needs a tolerance above 0, alpha = 1 and no learned steps"
                " (InferenceSpec.coding())"
            )
        return super().unsupported_reason(problem)
