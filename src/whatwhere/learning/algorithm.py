"""Algorithm 1 of the paper, its outer loops: for every layer and epoch, infer every batch, then
update the filters.

The inner loop, the steps of inference, is `engines.reference.ista`. Everything that surrounds an
algorithm of training (which epochs and batches are left, reports, guards, stop requests,
checkpoints) comes through its `TrainingSession`. With several processes the session gives each its
own batches, and adds up their sums for the filter update.

In a stream the filters are updated after every batch, which is inferred from scratch (moment
matching, then T steps), and no latents are stored: memory does not depend on the number of images.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from whatwhere.engines import Engine
from whatwhere.engines.convergence import solve
from whatwhere.learning.filter_problem import (
    Reduce,
    along_sphere,
    mean_over,
    project_filters,
    solve_filters,
    step_filters,
)
from whatwhere.learning.rare_maps import split_rare
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.training_data import StreamData, TrainingData
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.sized import masked
from whatwhere.model.solution import Solution
from whatwhere.spec import LearningSpec, Phase, Recipe


def learn(
    model: DeconvNet,
    recipe: Recipe,
    data: TrainingData,
    engines: Sequence[Engine],
    session: TrainingSession,
) -> DeconvNet:
    """Train every layer in turn; latents are stored from epoch to epoch. `engines` has an engine
    for each layer."""
    for layer, learning in enumerate(recipe.learning, start=1):
        for epoch in session.epochs(layer):
            for batch in session.batches():
                target = data.read(batch)
                latents = data.store.read(batch)
                if epoch - 1 in learning.reset_at and latents.p is not None:
                    latents = replace(latents, p=torch.zeros_like(latents.p))
                phase = training_phase(layer, learning)
                problem = Problem(model, target.v, phase, learning.inference, latents, target.mask)
                solution = infer_batch(problem, recipe, engines)
                data.store.write(batch, solution.latents)
                session.end_batch(model, masked(target.v, target.mask), solution)
            for k in _moving_filters(layer, learning):
                reduce: Reduce = session.sum_over_processes
                if learning.tangent:
                    reduce = along_sphere(model, k, reduce)
                engine = engines[layer - 1]
                f = solve_filters(model, k, data.stored, learning.cg_steps, reduce, engine)
                before = model.filters[k - 1].double()
                change = session.state.memory.get(f"change{k}")
                if change is not None:
                    f = f + learning.change_memory * change.to(f)
                model = session.same_filters(project_filters(model, k, f), k)
                if learning.change_memory:
                    change = model.filters[k - 1].double() - before
                    session.state.memory[f"change{k}"] = change
            if epoch <= learning.split_until:
                model = split_rare(model, layer, data, learning, session.sum_over_processes)
            session.end_epoch(model)
    return model


def learn_from_stream(
    model: DeconvNet,
    recipe: Recipe,
    data: StreamData,
    engines: Sequence[Engine],
    session: TrainingSession,
) -> DeconvNet:
    """Train every layer in turn, each on its own part of the stream. `engines` has an engine for
    each layer."""
    for layer, learning in enumerate(recipe.learning, start=1):
        phase = training_phase(layer, learning)
        engine = engines[layer - 1]
        for epoch in session.epochs(layer):
            for batch in session.batches():
                target = data.read(layer, epoch, batch)
                v = target.v
                M = target.mask
                images = data.images_in(layer, epoch, batch)
                mean: Reduce = partial(mean_over, images=images, reduce=session.sum_over_processes)
                solution = solve(engine, Problem(model, v, phase, learning.inference, mask=M))
                for k in _moving_filters(layer, learning):
                    linear_map = engine.filter_map(
                        Problem(model, v, phase, latents=solution.latents, mask=M), k
                    )
                    last = session.state.memory.get(f"direction{k}")
                    means = along_sphere(model, k, mean) if learning.tangent else mean
                    f, direction = step_filters(model, k, linear_map, means, last, learning)
                    session.state.memory[f"direction{k}"] = direction
                    model = session.same_filters(project_filters(model, k, f), k)
                session.end_batch(model, masked(v, M), solution)
            session.end_epoch(model)
    return model


def infer_batch(problem: Problem, recipe: Recipe, engines: Sequence[Engine]) -> Solution:
    """Infer a layer from the latents of the epoch before.

    If layers below have no pooling variables yet (they were trained elsewhere), they are inferred
    first, as in their own training.
    """
    layer = problem.phase.layer
    for k in (*range(len(problem.latents.pooling_params) + 1, layer), layer):
        learning = recipe.learning[k - 1]
        solution = solve(
            engines[k - 1],
            replace(problem, phase=training_phase(k, learning), spec=learning.inference),
        )
        problem = replace(problem, latents=solution.latents)
    return solution


def training_phase(layer: int, learning: LearningSpec) -> Phase:
    """Return what inference updates while `layer` is trained."""
    return Phase(
        layer=layer,
        update_pooling=tuple(range(1 if learning.update_lower_pooling else layer, layer + 1)),
    )


def _moving_filters(layer: int, learning: LearningSpec) -> tuple[int, ...]:
    """Return the layers whose filters are updated while `layer` is trained, the top one first."""
    return tuple(range(layer, 0, -1)) if learning.update_lower_filters else (layer,)
