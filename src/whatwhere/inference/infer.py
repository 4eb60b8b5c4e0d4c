"""From images to a solution: a plan of phases, batch by batch, through one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from whatwhere.errors import ImageError, SpecError
from whatwhere.inference import ista
from whatwhere.inference.engines import Engine, resolve
from whatwhere.inference.plan import joint
from whatwhere.inference.target import make_target
from whatwhere.latents import Background, Latents, Solution, Stats
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase


def infer(
    model: DeconvNet,
    images: Tensor,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    mask: Tensor | None = None,
    latents: Latents | None = None,
    engine: str = "auto",
    batch_size: int = 1000,
    progress: Callable[[int], None] | None = None,
) -> Solution:
    """Infer what and where of images [N, C, H, W]; no image ends with a higher objective than it began with.

    Images and latents are brought to the model's device and type.

    plan      phases, one after the other; empty means one joint phase from the top layer
    mask      a weight ≥ 0 for every pixel, [N, 1 or C, H, W]: 0 where it is unknown, as NaN is in the images
    latents   where to start from, as an earlier solution returned them; None starts anew
    engine    'auto' takes the fastest that supports the problem; the solution records which one ran
    progress  called after every batch with the number of images in it
    """
    if isinstance(images, Tensor) and len(images) == 0:
        raise ImageError("an empty set of images was given; expected at least one")
    spec = spec if spec is not None else InferenceSpec()
    plan = tuple(plan) or joint(model.spec.depth)
    for phase in plan:
        if phase.layer > model.spec.depth:
            raise SpecError(f"a phase of layer {phase.layer} was given; the model has {model.spec.depth} layers")
    target = make_target(model, images, mask)
    images = target.v
    if latents is not None:
        check_latents(model, images, latents)
        latents = replace(latents, background=Background()).to(model.device, model.dtype)
    highest = max(plan, key=lambda phase: phase.layer)  # an engine that supports this phase supports those below
    resolved = resolve("reference" if target.mask is not None else engine, model, images, highest, spec)
    solutions = []
    with torch.no_grad():
        for batch in torch.arange(len(images)).split(batch_size):
            chosen = slice(int(batch[0]), int(batch[-1]) + 1)
            start = Latents() if latents is None else latents[chosen]
            own_mask = None if target.mask is None else target.mask[chosen]
            solutions.append(run_plan(model, images[chosen], start, plan, spec, resolved, own_mask))
            if progress is not None:
                progress(len(batch))
    return Solution(
        replace(Latents.cat([s.latents for s in solutions]), background=target.background),
        Stats.cat([s.stats for s in solutions]),
        resolved.name,
        decoder=model.at(*images.shape[2:]),
    )


def check_latents(model: DeconvNet, images: Tensor, latents: Latents) -> None:
    """Refuse latents that cannot be these images'."""
    grids = [regions.grid for regions in model.at(*images.shape[2:]).regions]
    if len(latents.pooling_params) > len(grids) or (latents.p is not None and not latents.pooling_params):
        raise ImageError(
            f"latents with pooling variables of {len(latents.pooling_params)} layers were given; "
            f"the model has {len(grids)}"
        )
    for k, (theta, grid) in enumerate(zip(latents.pooling_params, grids, strict=False), start=1):
        known = [theta.mu, theta.gamma] + (
            [latents.p] if k == len(latents.pooling_params) and latents.p is not None else []
        )
        for tensor in known:
            if len(tensor) != len(images) or tensor.shape[-3:] != torch.Size(grid):
                raise ImageError(
                    f"latents of shape {list(tensor.shape)} were given for layer {k}; those of these images have "
                    f"[{len(images)}, …, {', '.join(map(str, grid))}] (give what `infer` returned for the same images)"
                )


def run_plan(
    model: DeconvNet,
    images: Tensor,
    latents: Latents,
    plan: Sequence[Phase],
    spec: InferenceSpec,
    engine: Engine,
    mask: Tensor | None = None,
) -> Solution:
    """One batch through every phase; each phase starts from the latents that the one before left."""
    for phase in plan:
        ended = run_phase(model, images, latents, phase, spec, engine, mask)
        solution = keep_the_better(model, images, latents, phase, spec, ended, mask)
        latents = solution.latents
    return solution


def run_phase(
    model: DeconvNet,
    images: Tensor,
    latents: Latents,
    phase: Phase,
    spec: InferenceSpec,
    engine: Engine,
    mask: Tensor | None = None,
) -> Solution:
    """One batch through one phase."""
    return engine.solve(model, images, latents, phase, spec, mask)


def keep_the_better(
    model: DeconvNet,
    images: Tensor,
    latents: Latents,
    phase: Phase,
    spec: InferenceSpec,
    solution: Solution,
    mask: Tensor | None = None,
) -> Solution:
    """Where an image's objective ended above its start, keep the start.

    It can, since the paper's steps are no line searches of the whole objective: for α < 1 a local minimum may
    lie above p = 0, and on images of extreme contrast the fixed step of the pooling variables overshoots.
    Training does without this: an image that was given up would teach the filters nothing.
    """
    stats = solution.stats
    worse = stats.cost[-1] > stats.cost[0]
    if not worse.any():
        return solution
    mask = None if mask is None else mask[worse]
    begun = ista.start(model.at(*images.shape[2:]), images[worse], latents[worse], phase, spec, mask)

    def ended_as_begun(trace: Tensor) -> Tensor:
        return torch.cat([trace[:-1], trace[0].where(worse, trace[-1])[None]])

    return replace(
        solution,
        latents=solution.latents.put(worse, Latents(begun.p, begun.theta)),
        stats=Stats(
            ended_as_begun(stats.reconstruction),
            ended_as_begun(stats.penalty),
            ended_as_begun(stats.nonzeros),
            stats.step,
        ),
    )
