"""How fast a way of learning learns: the cost on held-out images against seconds and against
images seen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from whatwhere import Solution
from whatwhere.engines import resolve
from whatwhere.engines.convergence import solve
from whatwhere.inference.target import make_target
from whatwhere.learning.algorithm import learn, learn_from_stream, training_phase
from whatwhere.learning.reports import TrainingState, first_epoch
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.trainer import TrainingJob, open_data, resolve_engines
from whatwhere.learning.training_data import StreamData, open_images, stream_recipe
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import Recipe

EVALUATION_STEPS = 50
RARE = 0.01  # a map that is active in fewer images than this share is hardly used


@dataclass(frozen=True)
class Snapshot:
    """The model at one moment of its training; images counts those inferred, again in every epoch.

    processor_seconds   of all threads: what counts where other programs use the same cores
    """

    layer: int
    images: int
    seconds: float
    processor_seconds: float
    model: DeconvNet


@dataclass
class RecordingSession(TrainingSession):
    """Notes the model after every `every` batches and after every epoch."""

    every: int = 1
    snapshots: list[Snapshot] = field(default_factory=list)
    _images: int = 0
    _batches: int = 0
    _start: float = field(default_factory=time.perf_counter)
    _processor_start: float = field(default_factory=time.process_time)

    def end_batch(self, model: DeconvNet, images: Tensor, solution: Solution) -> None:
        super().end_batch(model, images, solution)
        self._images, self._batches = self._images + len(images), self._batches + 1
        if isinstance(self.data, StreamData) and self._batches % self.every == 0:
            self._note(model)

    def end_epoch(self, model: DeconvNet) -> None:
        if not (self.snapshots and self.snapshots[-1].model is model):
            self._note(model)
        super().end_epoch(model)

    def _note(self, model: DeconvNet) -> None:
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        seconds, used = (
            time.perf_counter() - self._start,
            time.process_time() - self._processor_start,
        )
        self.snapshots.append(Snapshot(self.state.layer, self._images, seconds, used, model))


def record(
    recipe: Recipe,
    images: Any,
    *,
    image_count: int | None = None,
    device: str = "cpu",
    every: int = 10,
) -> list[Snapshot]:
    """Train by a recipe in memory, with snapshots; evaluating them takes no part in the seconds."""
    stream = open_images(images, recipe.model)
    recipe = stream_recipe(recipe, stream, image_count)
    model = DeconvNet(recipe.model, seed=recipe.seed).to(device)
    job = TrainingJob(recipe, stream, image_count=image_count)
    with torch.no_grad(), open_data(job, model, None) as data:
        engines = resolve_engines(
            "auto", model, make_target(model, stream.first_images()[:1]).v, recipe
        )
        state = TrainingState(model, *first_epoch(recipe))
        session = RecordingSession(
            recipe, data, state, [engine.name for engine in engines], every=every
        )
        if isinstance(data, StreamData):
            learn_from_stream(model, recipe, data, engines, session)
        else:
            learn(model, recipe, data, engines, session)
    return session.snapshots


def held_out_cost(model: DeconvNet, layer: int, recipe: Recipe, images: Tensor) -> dict[str, float]:
    """Cost, non-zeros and hardly used maps of a layer on images it has not seen, from scratch."""
    learning = recipe.learning[layer - 1]
    spec, phase = (
        replace(learning.inference, steps=EVALUATION_STEPS),
        training_phase(layer, learning),
    )
    images = images.to(model.device, model.dtype)
    with torch.no_grad():
        engine = resolve("auto", Problem(model, images[:1], phase, spec))
        solution = solve(engine, Problem(model, images, phase, spec))
    active = (solution.features != 0).flatten(2).any(2).float().mean(0)
    return {
        "cost": float(solution.stats.cost[-1].mean()),
        "nonzeros": float(solution.stats.nonzeros[-1].float().mean()),
        "rare_maps": int((active < RARE).sum()),
    }


def curve(snapshots: list[Snapshot], recipe: Recipe, images: Tensor) -> list[dict[str, float]]:
    """Every snapshot with its cost on held-out images."""
    return [
        {
            "layer": s.layer,
            "images": s.images,
            "seconds": round(s.seconds, 3),
            "processor_seconds": round(s.processor_seconds, 3),
            **held_out_cost(s.model, s.layer, recipe, images),
        }
        for s in snapshots
    ]
