"""The fast engine on the CPU: one image's whole state stays in cache through all steps; threads
share the images.

docs/engines/cpu.md explains it. Results do not depend on the number of threads.
"""

import importlib.util
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from whatwhere.engines import convergence
from whatwhere.engines.base import LinearMap, require_supported
from whatwhere.engines.fast import FAST
from whatwhere.engines.support import ABOVE_0, ALL, ANY, Kinds, Only, Support
from whatwhere.model import Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import Fixed, Gaussian, LineSearch, Max, Phase, Power, Sum

if TYPE_CHECKING:
    from whatwhere.engines.cpu.unrolled import UnrolledSteps

__all__ = ["CPUEngine", "GreedyEngine"]

GREEDY = Support(
    inference={
        "lam": ANY,
        "penalty": Kinds(Power),
        "penalty.alpha": Only(1),
        "steps": ANY,
        "tolerance": ABOVE_0,
        # coordinate descent takes no steps along a gradient, and there is no pooling to move
        "step": Kinds(LineSearch, Fixed),
        "step.per": ANY,
        "step.momentum": ANY,
        "pooling_step": ANY,
        "moments": ALL,
    },
    model={
        "layers.each.maps": ANY,
        "layers.each.filter_size": ANY,
        # of one element, which has all the weight
        "layers.each.pooling": Kinds(Gaussian, Max, Sum),
        "layers.each.pool_size": Only(1, (1, 1)),
        "layers.each.pool_stride": Only(None, 1),
        "layers.each.fan_in": ANY,  # filters that are not connected are 0
        "channels": ANY,
        "nonnegative": ANY,
        # how filters are projected when they are learned, and what happens to images before
        "signed_filters": ANY,
        "normalise": ANY,
        "input": ALL,
    },
)
"""What coordinate descent supports."""


class CPUEngine:
    """The steps of `ista.solve` as machine code that Numba compiles on first use."""

    name = "cpu"
    converges = False
    support = FAST

    def solve(self, problem: Problem) -> Solution:
        """Run all steps of one phase for one batch of images."""
        # here: importing Numba takes a second
        from whatwhere.engines.cpu.batch_solver import BatchSolver

        require_supported(self.name, self.unsupported_reason(problem))
        return BatchSolver(problem.detach()).solve()

    def filter_map(self, problem: Problem, k: int) -> LinearMap:
        """Return the same as `engines.reference.filter_map.FilterMap`, faster."""
        from whatwhere.engines.cpu.filters import CPUFilterMap

        problem.require_latents(k)
        require_supported(self.name, self.unsupported_filters(problem))
        return CPUFilterMap(problem.detach(), k)

    def unrolled(self, problem: Problem, *, exact_fit: bool) -> "UnrolledSteps":
        """Return the steps of a schedule, which gradients can be propagated back through.

        Parameters
        ----------
        exact_fit
            fit the pooling variables at the start as exactly as the reference, which takes longer:
            gradients of the pooling variables of regions without signal need it
        """
        from whatwhere.engines.cpu.unrolled import UnrolledSteps

        require_supported(self.name, self.unsupported_gradients(problem))
        return UnrolledSteps(problem, exact_fit)

    def unsupported_gradients(self, problem: Problem) -> str | None:
        """Return why `unrolled` does not support a problem; None if it does."""
        if reason := self.unsupported_reason(problem):
            return reason
        if problem.spec.schedule is None or problem.mask is not None or not problem.is_fresh:
            return "gradients need a schedule, no mask and no latents to start from"
        if not problem.model.tied:
            return "gradients need the same filters on both passes"
        layers = problem.model.spec.layers[: problem.phase.layer]
        for number, layer in enumerate(layers, start=1):
            at_top = number == len(layers) and layer.pool_shape == (1, 1)
            if not at_top and not (layer.pool_shape == layer.strides == (2, 2)):
                return f"gradients need regions of 2 × 2 side by side, not those of layer {number}"
        return None

    def unsupported_filters(self, problem: Problem) -> str | None:
        """Return why this engine does not support a filter map; None if it does."""
        return self.unsupported_machine(problem) or FAST.unsupported_reason(problem)

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return why this engine does not support the problem; None if it does."""
        return self.unsupported_machine(problem) or self.support.unsupported_reason(problem)

    def unsupported_machine(self, problem: Problem) -> str | None:
        """Return why this engine does not support the device or the numbers of a problem."""
        if importlib.util.find_spec("numba") is None:
            return "it needs the package numba (pip install numba)"
        model = problem.model
        if model.device.type != "cpu":
            return f"it needs images and filters on the CPU, not on {model.device}"
        if model.dtype not in (torch.float32, torch.float64):
            return f"it needs images and filters of float32 or float64, not of {model.dtype}"
        return None


class GreedyEngine(CPUEngine):
    """Converged codes of signals without pooling, by coordinate descent in place of steps."""

    name = "greedy"
    converges = True
    support = GREEDY

    def solve(self, problem: Problem) -> Solution:
        """Return the codes to `tolerance`. Signals that coordinate descent does not finish within
        its budget are solved by the engine `cpu` as well, and the lower objective counts."""
        from whatwhere.engines.cpu.greedy import solve

        require_supported(self.name, self.unsupported_reason(problem))
        problem = problem.detach()
        codes = solve(problem)
        solution = codes.solution
        rest = ~codes.finished
        if not rest.any():
            return solution
        # regions of one element have nothing to move
        part = convergence.solve(CPUEngine(), replace(problem, phase=Phase(layer=1))[rest])
        lower = part.stats.cost[-1] < solution.stats.cost[-1][rest]
        chosen = rest.masked_scatter(rest, lower)
        steps = max(len(solution.stats.step), len(part.stats.step))
        better = part.stats.padded(steps).of_images(lower)
        return replace(
            solution,
            latents=solution.latents.put(chosen, part.latents[lower]),
            stats=solution.stats.padded(steps).put(chosen, better),
        )

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return why this engine does not support the problem; None if it does."""
        layer = problem.model.spec.layers[0]
        if problem.phase.layer > 1:
            return "it needs one layer without pooling (pool_size = 1)"
        if problem.images.shape[2] != 1 or layer.filter_shape[0] != 1:
            return "it needs signals, images of height 1"
        if not problem.model.tied:
            return "it needs steps that were not learned (InferenceSpec.coding())"
        return super().unsupported_reason(problem)
