"""Inference until the cost no longer changes: an engine runs a block of steps at a time, and
finished images stop.

After a block of B steps an image is finished if its cost C changed by a share of at most
`tolerance` a step:

    |C_before - C_after| ≤ tolerance · B · C_after

or, with `InferenceSpec.gap`, once its duality gap (`model.gap`) is at most that share of its cost;
for codes without pooling, Newton steps (`active_set`) find the last digits.

The rule is applied to each image, and a finished image leaves the batch, so a code does not depend
on the other images. With a constant step β_U the pooling variables circle around a minimum, so β_U
is halved after every block. Momentum starts again with every block. Both determine the length of a
block (benchmarks/results/logs.json, coding).
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from whatwhere.engines import active_set
from whatwhere.engines.active_set import NewtonSettings
from whatwhere.engines.base import Engine
from whatwhere.errors import ConvergenceWarning, warn
from whatwhere.model import Problem
from whatwhere.model.gap import relative_gap
from whatwhere.model.solution import Solution, Stats
from whatwhere.spec import InferenceSpec

BLOCK = 100  # steps


def solve(engine: Engine, problem: Problem) -> Solution:
    """Run `engine.solve`. With a tolerance, run it in blocks of steps, at most `spec.steps` in
    total, until every image is finished.

    In the statistics, the steps that a finished image did not take have size 0 and leave all
    measures as they were.
    """
    spec = problem.spec
    if not _is_iterated(spec) or engine.converges:
        return engine.solve(problem)
    active = torch.ones(len(problem.images), dtype=torch.bool, device=problem.images.device)
    solution: Solution | None = None
    for block in blocks(spec):
        part = engine.solve(replace(problem, spec=block)[active])
        if solution is None:
            solution = part
        else:
            joined = append(solution.stats, part.stats, active)
            solution = replace(
                part, latents=solution.latents.put(active, part.latents), stats=joined
            )
        problem = replace(problem, latents=solution.latents)
        # also true if the cost is not a number
        if spec.gap > 0:
            goes_on = ~(relative_gap(problem[active], part.latents) <= _first_gap(problem))
        else:
            goes_on = ~(change_per_step(part.stats) <= spec.tolerance)
        active = active.masked_scatter(active, goes_on)
        if not active.any():
            break
    assert solution is not None
    return solution if spec.gap == 0 else _to_the_gap(problem, solution)


def _first_gap(problem: Problem) -> float:
    """Return the gap at which the steps end: Newton steps go on, if they support the problem."""
    gap = problem.spec.gap
    if active_set.unsupported_reason(problem) is not None:
        return gap
    return max(gap, NewtonSettings().begin)


def _to_the_gap(problem: Problem, solution: Solution) -> Solution:
    """Return the solution, with the images that steps have brought near the minimum at it."""
    if active_set.unsupported_reason(problem) is not None:
        return solution
    gap = relative_gap(problem, solution.latents)
    near = (gap > problem.spec.gap) & (gap <= NewtonSettings().begin)
    if not near.any():
        return solution
    part = problem[near]
    latents = active_set.finish(part, solution.latents[near], problem.spec.gap)
    before = solution.stats.of_images(near)
    end = part.objective(latents)
    stats = Stats(
        torch.stack([before.reconstruction[-1], end.reconstruction]),
        torch.stack([before.penalty[-1], end.penalty]),
        torch.stack([before.nonzeros[-1], end.nonzeros]),
        torch.zeros_like(before.step[:1]),
    )
    joined = append(solution.stats, stats, near)
    return replace(solution, latents=solution.latents.put(near, latents), stats=joined)


def blocks(spec: InferenceSpec) -> Iterator[InferenceSpec]:
    """Yield the settings of each block of steps; without a tolerance or a gap all steps are one
    block."""
    if not _is_iterated(spec):
        yield spec
        return
    for number, steps in enumerate(block_lengths(spec.steps)):
        pooling_step = spec.pooling_step / 2**number
        yield replace(spec, steps=steps, tolerance=0.0, gap=0.0, pooling_step=pooling_step)


def _is_iterated(spec: InferenceSpec) -> bool:
    """Tell whether images stop as they finish."""
    return (spec.tolerance > 0 or spec.gap > 0) and spec.schedule is None


def block_lengths(steps: int) -> list[int]:
    """Return the lengths of the blocks of this many steps; the last one holds the rest."""
    return [min(BLOCK, steps - begin) for begin in range(0, steps, BLOCK)] or [0]


def append(stats: Stats, block: Stats, active: Tensor) -> Stats:
    """Return the statistics of all images, continued by a block of the active ones."""
    T, B = len(stats.step), len(block.step)
    longer = stats.padded(T + B)
    for name in ("reconstruction", "penalty", "nonzeros"):
        getattr(longer, name)[T + 1 :, active] = getattr(block, name)[1:]
    longer.step[T:, active] = block.step
    return longer


def change_per_step(stats: Stats) -> Tensor:
    """Relative change of each image's cost per step in the last block, [N]."""
    T = len(stats.step)
    B = block_lengths(T)[-1]
    before, after = (stats.reconstruction[t] + stats.penalty[t] for t in (T - B, T))
    return relative_change(before, after, B)


def relative_change(before: Tensor, after: Tensor, steps: int) -> Tensor:
    """Relative change of each image's cost per step, [N]."""
    change = (before - after).abs()
    return torch.where(change == 0, 0, change / (max(steps, 1) * after))


def unfinished_changes(stats: Stats, spec: InferenceSpec) -> Tensor:
    """`change_per_step` of the images that took all steps and still changed; with `spec.gap`, the
    gaps that are still larger."""
    if spec.gap > 0 and stats.gap is not None:
        return stats.gap[~(stats.gap <= spec.gap)]
    if not _is_iterated(spec) or len(stats.step) < spec.steps:
        return stats.penalty.new_zeros(0)
    change = change_per_step(stats)
    return change[~(change <= spec.tolerance)]


def warn_unconverged(unfinished: Tensor, images: int, spec: InferenceSpec) -> None:
    """Warn about images that took all steps and still changed, given their `unfinished_changes`."""
    if len(unfinished):
        measure, bound = ("gap", spec.gap) if spec.gap > 0 else ("tolerance", spec.tolerance)
        worst = float(unfinished.max())
        warn(ConvergenceWarning(measure, bound, len(unfinished), images, spec.steps, worst))
