"""From images to a solution: a plan of phases, batch by batch, through one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whatwhere.engines import Engine, resolve
from whatwhere.engines.convergence import solve, unfinished_changes, warn_unconverged
from whatwhere.engines.reference import ista
from whatwhere.errors import EmptySet, SeveralSizes
from whatwhere.inference import checks
from whatwhere.inference.auto_lam import resolve_lam
from whatwhere.inference.learned_steps import Steps, resolve_steps
from whatwhere.inference.target import (
    ImageSource,
    Pictures,
    Target,
    as_image_source,
    check_target,
    in_model_units,
    input_target,
    make_target,
)
from whatwhere.latents import Background, Latents
from whatwhere.model import DeconvNet
from whatwhere.model.gap import relative_gap
from whatwhere.model.problem import Problem, check_latents
from whatwhere.model.solution import Solution, Stats
from whatwhere.spec import InferenceSpec, LineSearch, Phase
from whatwhere.spec.checks import require, require_count
from whatwhere.spec.recipe import joint


def infer(
    model: DeconvNet,
    images: Pictures,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    mask: Tensor | None = None,
    latents: Latents | None = None,
    engine: str = "auto",
    batch_size: int = 1000,
    progress: Callable[[int], None] | None = None,
    steps: Steps | int | None = None,
) -> Solution:
    """Infer what and where of images [N, C, H, W], or of signals [N, C, T] with a model of signals.

    No image ends with a higher objective than it began with.

    Images and latents are converted to the model's device and dtype.

    Parameters
    ----------
    model
        the model, on the device where inference is to run
    images
        a tensor or array [N, C, H, W] or [N, C, T] of floats or of integers of 8 or 16 bits; one
        image [C, H, W], [H, W] or [H, W, 3]; a path, a Pillow picture, or a list of them; or the
        result of `whatwhere.data.load`, which is read batch by batch
    spec
        how to infer; None means `InferenceSpec()`, the paper's settings at test time
    plan
        phases, one after the other; empty means one joint phase from the top layer
    mask
        a weight ≥ 0 for every pixel, [N, 1 or C, H, W] or [N, 1 or C, T]; 0 marks unknown pixels,
        as NaN in the images does
    latents
        latents to start from, as an earlier solution returned them; None starts from the images
        alone
    engine
        'auto' takes the fastest engine that supports the problem. Right after an installation, it
        takes the reference for small problems while machine code compiles. The solution records
        which one ran
    batch_size
        number of images inferred together
    progress
        called after every batch with the number of images in it
    steps
        a number of steps, in place of `spec.steps`; or learned steps, instead of spec and plan.
        'learned': the steps that `whatwhere distill` saved next to the model's file; 'learned-5'
        chooses among several; or `LearnedSteps`. None takes the steps of `spec`

    Returns
    -------
    Solution
        the solution: `features`, `latents`, `reconstruction`, `stats`

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> digits = ww.data.load("digits", split="test")
    >>> spec = ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=20)
    >>> solution = ww.infer(model, digits[:2], spec)
    >>> solution.features.shape, solution.reconstruction.shape
    (torch.Size([2, 48, 10, 10]), torch.Size([2, 1, 28, 28]))
    >>> bool((solution.stats.cost[-1] < solution.stats.cost[0]).all())
    True
    """
    given = _check_input(model, images, mask)
    require_count("batch_size", batch_size)
    checks.check_filters(model)
    checks.check_settings(spec, plan)
    if isinstance(steps, int):
        spec = replace(spec or InferenceSpec(), steps=steps)
    elif steps is not None:
        require(
            spec is None and not plan,
            {"steps": steps, "spec": spec, "plan": plan},
            "steps alone, because learned steps have their own settings",
        )
        model, spec = resolve_steps(model, steps)
    plan = tuple(plan) or joint(model.spec.depth)
    spec = resolve_lam(model, given.images, spec or InferenceSpec(), plan, mask=given.mask)

    first = given.target(model, slice(0, batch_size))
    # an engine that supports this phase supports those below
    highest = max(plan, key=lambda phase: phase.layer)
    problem = Problem(model, first.v, highest, spec, mask=first.mask)
    if latents is not None:
        latents = checks.convert_latents(model, replace(latents, background=Background()))
        check_latents(problem.sized, latents, len(given.images))
    resolved = resolve(engine, problem, len(given.images))

    solutions = []
    with torch.no_grad():
        for begin in range(0, len(given.images), batch_size):
            batch = slice(begin, min(begin + batch_size, len(given.images)))
            target = first if begin == 0 else given.target(model, batch)
            _check_same_size(target, first)
            if begin > 0 or latents is not None:
                start = Latents() if latents is None else latents[batch]
                problem = Problem(model, target.v, plan[0], spec, start, target.mask)
            ended = run_plan(resolved, problem, plan)
            if spec.gap > 0:
                last = Problem(model, target.v, plan[-1], spec, mask=target.mask)
                gap = relative_gap(last, ended.latents)
                ended = replace(ended, stats=replace(ended.stats, gap=gap))
            with_background = replace(ended.latents, background=target.background)
            solutions.append(replace(ended, latents=with_background))
            if progress is not None:
                progress(len(target.v))

    stats = Stats.cat([solution.stats for solution in solutions])
    warn_unconverged(unfinished_changes(stats, spec), len(given.images), spec)
    return Solution(
        Latents.cat([solution.latents for solution in solutions]),
        stats,
        resolved.name,
        decoder=problem.sized,
        lam=problem.lam,
        signals=given.are_signals,
    )


# What is inferred from ----------------------------------------------------------------------------


@dataclass(frozen=True)
class GivenImages:
    """The images of one call of `infer`, in the model's units.

    Parameters
    ----------
    images
        [N, C, H, W], or an object that reads them batch by batch
    mask
        the weights of their pixels; None if all count the same
    checked
        whether all of them were checked already; what is read batch by batch is checked when it is
        read
    are_signals
        whether signals [N, C, T] were given: here they are images of height 1
    """

    images: ImageSource
    mask: Tensor | None
    checked: bool
    are_signals: bool

    def target(self, model: DeconvNet, batch: slice) -> Target:
        """Return what the model explains in a batch."""
        weights = None if self.mask is None else self.mask[batch]
        if self.checked:
            return input_target(model, self.images[batch], weights)
        return make_target(model, self.images[batch], weights)


def _check_input(model: DeconvNet, images: Pictures, mask: Tensor | None) -> GivenImages:
    """Return the images in the model's units. A tensor is checked here, before anything is
    computed."""
    given, are_signals = as_image_source(images, model.spec)
    source = in_model_units(model.spec, given)
    if are_signals and mask is not None and mask.ndim == 3:
        mask = mask[:, :, None]
    values = None
    checked = isinstance(source, Tensor)
    if checked:
        source, mask, values = check_target(model, source, mask)
    if len(source) == 0:
        raise EmptySet
    if checked:
        checks.warn_of_bytes(model.spec, source[:1], values)
    return GivenImages(source, mask, checked, are_signals)


def _check_same_size(target: Target, first: Target) -> None:
    """Raise an ImageError for a batch whose images have another size than the first batch."""
    (height, width), (first_height, first_width) = target.v.shape[2:], first.v.shape[2:]
    if (height, width) != (first_height, first_width):
        raise SeveralSizes([(first_height, first_width), (height, width)])


# A plan on one batch ------------------------------------------------------------------------------


def run_plan(engine: Engine, problem: Problem, plan: Sequence[Phase]) -> Solution:
    """Return one batch through every phase; each starts from the latents that the one before
    left."""
    solution: Solution | None = None
    for phase in plan:
        if solution is not None:
            problem = replace(problem, phase=phase, latents=solution.latents)
        elif phase != problem.phase:
            problem = replace(problem, phase=phase)
        ended = solve(engine, problem)
        first, last = _first_and_last_cost(ended.stats)
        checks.check_start(problem, first)
        if problem.spec.schedule is not None:
            ended = _take_plain_steps(engine, problem, ended)
            first, last = _first_and_last_cost(ended.stats)
        better = last <= first  # a cost that is not a number is not better
        solution = ended if better.all() else _keep_the_better(problem, ended, ~better)
    assert solution is not None
    return solution


def _first_and_last_cost(stats: Stats) -> tuple[Tensor, Tensor]:
    """Return the objectives before the first and after the last step, [N] each, on the host: a
    device is waited for once."""
    ends = slice(None, None, max(len(stats.step), 1))
    cost = (stats.reconstruction[ends] + stats.penalty[ends]).cpu()
    return cost[0], cost[-1]


def _take_plain_steps(engine: Engine, problem: Problem, solution: Solution) -> Solution:
    """Take as many steps of a line search instead, if a schedule did not lower an image's
    objective.

    The sizes of a schedule suit images like those that it was learned from; on others a step may be
    too long.
    """
    cost = solution.stats.cost
    # A smaller relative decrease than 1e-6 may be rounding; an objective of 0 cannot be lowered.
    worse = ~(cost[-1] < (1 - 1e-6) * cost[0]) & (cost[0] > 0)
    if not worse.any():
        return solution
    searched = replace(problem.spec, step=LineSearch())
    plain = engine.solve(
        replace(problem, model=problem.model.with_upward(None), spec=searched)[worse]
    )
    stats = solution.stats.put(worse, plain.stats)
    return replace(solution, latents=solution.latents.put(worse, plain.latents), stats=stats)


def _keep_the_better(problem: Problem, solution: Solution, worse: Tensor) -> Solution:
    """Keep the start of the images [N] whose objective ended above it.

    This can happen, because the paper's steps are not line searches of the whole objective: for α <
    1 a local minimum may lie above p = 0, and on images of extreme contrast the fixed step of the
    pooling variables overshoots. Training does without this: the filters would learn nothing from
    an image that keeps its start.
    """
    stats = solution.stats
    worse = worse.to(stats.penalty.device)

    def ended_as_begun(trace: Tensor) -> Tensor:
        return torch.cat([trace[:-1], trace[0].where(worse, trace[-1])[None]])

    names = ("reconstruction", "penalty", "nonzeros")
    latents = solution.latents.put(worse, ista.start(problem[worse]).latents)
    kept = replace(stats, **{name: ended_as_begun(getattr(stats, name)) for name in names})
    return replace(solution, latents=latents, stats=kept)
