"""Learning in a stream: the filters are updated after every batch, and no latents are stored.

Every batch is inferred from scratch (moment matching, then T steps). Its filter problem ½ ‖A f - v‖² is the paper's
(see `filter_problem`), but of one batch instead of all images, so a step must not rely on it alone: the first direction
keeps a share of the last batch's,

    g = Aᵀ (v - A f) / n,    d = g + momentum · d_last,    f ← project(f + d ⟨g, d⟩ / ⟨d, Aᵀ A d / n⟩)

and further steps, if `cg_steps` asks for them, are conjugate to it. Memory does not depend on the number of images.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from whatwhere.inference.convergence import solve
from whatwhere.inference.engines import Engine
from whatwhere.inference.filter_map import LinearMap
from whatwhere.learning.algorithm import moving_filters, training_phase
from whatwhere.learning.filter_problem import Check, project_filters
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.training_data import StreamData
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.sized import masked
from whatwhere.spec import EveryBatch, LearningSpec, Recipe


def learn_from_stream(
    model: DeconvNet, recipe: Recipe, data: StreamData, engines: Sequence[Engine], session: TrainingSession
) -> DeconvNet:
    """Train every layer in turn, each on its own part of the stream. `engines` has one for each layer."""
    for layer, learning in enumerate(recipe.learning, start=1):
        phase, engine = training_phase(layer, learning), engines[layer - 1]
        for epoch in session.epochs(layer):
            for batch in session.batches():
                target = data.read(layer, epoch, batch)
                v, M = target.v, target.mask
                mean = partial(mean_over, images=len(v), check=session.check_sums)
                solution = solve(engine, Problem(model, v, phase, learning.inference, mask=M))
                for k in moving_filters(layer, learning):
                    linear_map = engine.filter_map(Problem(model, v, phase, latents=solution.latents, mask=M), k)
                    last = session.memory.get(f"direction{k}")
                    f, session.memory[f"direction{k}"] = step_filters(model, k, linear_map, mean, last, learning)
                    model = project_filters(model, k, f)
                session.end_batch(model, masked(v, M), solution)
            session.end_epoch(model)
    return model


def mean_over(total: Tensor, images: int, check: Check) -> Tensor:
    """The mean over images, in float64, of a sum that is finite."""
    return check(total.double()) / images


def step_filters(
    model: DeconvNet, k: int, linear_map: LinearMap, mean: Check, last: Tensor | None, learning: LearningSpec
) -> tuple[Tensor, Tensor]:
    """Filters of layer k after `cg_steps` conjugate steps, in float64, and the direction for the next batch.

    mean  of what the linear map adds up over the images
    last  the direction of the batch before
    """
    assert isinstance(learning.update, EveryBatch)
    connected, f = model.connectivity[k - 1][:, :, None, None], model.filters[k - 1].double()
    r = mean(linear_map.negative_gradient(model.filters[k - 1])) * connected
    first = d = r if last is None else r + learning.update.direction_memory * last.to(r)
    for _ in range(learning.cg_steps):
        image = mean(linear_map.normal(d.to(model.dtype))) * connected
        curvature = torch.sum(d * image)
        # where there is nothing to gain, curvature or slope is 0 and so is the step; uphill there is no step either
        step = torch.where(curvature > 0, torch.sum(r * d) / curvature, 0).clamp_min(0)
        f, r = f + step * d, r - step * image
        d = r - torch.where(curvature > 0, torch.sum(r * image) / curvature, 0) * d
    return f, first
