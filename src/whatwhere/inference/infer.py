"""From images to a solution: a plan of phases, batch by batch, through one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from whatwhere.errors import ImageError, SpecError
from whatwhere.inference.engines import choose, engine
from whatwhere.inference.plan import joint
from whatwhere.latents import Latents, Solution, Stats
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase


def infer(
    model: DeconvNet,
    images: Tensor,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    latents: Latents | None = None,
    engine: str = "auto",
    batch_size: int = 1000,
    progress: Callable[[int], None] | None = None,
) -> Solution:
    """Infer what and where of images [N, C, H, W].

    plan      phases, one after the other; empty means one joint phase from the top layer
    latents   where to start from, as an earlier solution returned them; None starts anew
    engine    'auto' takes the fastest that can serve; the solution says which it was
    progress  called after every batch with the number of images in it
    """
    model.check_images(images)
    if len(images) == 0:
        raise ImageError("an empty set of images was given; expected at least one")
    spec = spec if spec is not None else InferenceSpec()
    plan = tuple(plan) or joint(model.spec.depth)
    for phase in plan:
        if phase.layer > model.spec.depth:
            raise SpecError(f"a phase of layer {phase.layer} was given; the model has {model.spec.depth} layers")
    solutions = []
    with torch.no_grad():
        for batch in torch.arange(len(images)).split(batch_size):
            chosen = slice(int(batch[0]), int(batch[-1]) + 1)
            start = Latents() if latents is None else latents[chosen]
            solutions.append(run_plan(model, images[chosen], start, plan, spec, engine))
            if progress is not None:
                progress(len(batch))
    return Solution(
        Latents.cat([s.latents for s in solutions]),
        Stats.cat([s.stats for s in solutions]),
        solutions[-1].engine,
    )


def run_plan(
    model: DeconvNet, images: Tensor, latents: Latents, plan: Sequence[Phase], spec: InferenceSpec, name: str
) -> Solution:
    """One batch through every phase; each phase starts from the latents that the one before left."""
    solution: Solution | None = None
    for phase in plan:
        used, _ = choose(name, model, images, phase, spec)
        solution = engine(used).solve(model, images, latents, phase, spec)
        latents = replace(solution.latents)
    assert solution is not None
    return solution
