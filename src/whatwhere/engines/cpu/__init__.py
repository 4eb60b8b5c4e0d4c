"""The fast engine on the CPU: one image's whole state stays in cache through all steps; threads
share the images.

docs/engines/cpu.md explains it. Results do not depend on the number of threads.
"""

import importlib.util
from dataclasses import replace

import torch
from torch import Tensor

from whatwhere.engines import convergence
from whatwhere.engines.base import LinearMap, require_supported
from whatwhere.model import Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import Fixed, Phase

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
        """The codes to `tolerance`; signals that coordinate descent does not finish within its
        budget go on by steps of all coefficients, from where it left them."""
        from whatwhere.engines.cpu.greedy import solve

        require_supported(self.name, self.unsupported_reason(problem))
        problem = problem.detach()
        codes = solve(problem)
        if codes.finished.all():
            return codes.solution
        return self.continue_by_steps(problem, codes.solution, ~codes.finished)

    @staticmethod
    def continue_by_steps(problem: Problem, solution: Solution, rest: Tensor) -> Solution:
        """The solution with the signals `rest` [N] solved to the end by the engine `cpu`, where
        that ends lower."""
        # safe steps: a line search of the smooth term alone may end above the minimum
        spec = replace(problem.spec, step=Fixed(momentum=True))
        # regions of one element have nothing to move
        still = replace(problem, latents=solution.latents, phase=Phase(layer=1), spec=spec)
        part = convergence.solve(CPUEngine(), still[rest])
        lower = part.stats.cost[-1] <= part.stats.cost[0]
        if not lower.all():
            rest = rest.masked_scatter(rest, lower)
            part = replace(part, latents=part.latents[lower], stats=part.stats.of_images(lower))
        return replace(
            solution,
            latents=solution.latents.put(rest, part.latents),
            stats=convergence.append(solution.stats, part.stats, rest),
        )

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
