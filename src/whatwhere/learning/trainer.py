"""Algorithm 1 of the paper, its outer loops: layer by layer, epoch by epoch, infer all images, then update filters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from whatwhere.inference.infer import run_plan
from whatwhere.latents import Latents, Solution
from whatwhere.learning.filter_problem import update_filters
from whatwhere.model import DeconvNet
from whatwhere.spec import LearningSpec, Phase, Recipe
from whatwhere.storage import LatentStore


class ImageSource(Protocol):
    """Anything that gives images [n, C, H, W] for a slice: a tensor, or a data set that reads lazily."""

    def __len__(self) -> int: ...
    def __getitem__(self, images: slice) -> Tensor: ...


@dataclass(frozen=True)
class EpochReport:
    """What one epoch of one layer came to, per image."""

    layer: int
    epoch: int
    reconstruction: float
    penalty: float
    nonzeros: float
    dead_maps: int
    seconds: float
    engine: str

    @property
    def cost(self) -> float:
        return self.reconstruction + self.penalty


@dataclass(frozen=True)
class TrainedModel:
    """The outcome of training: the model and one report an epoch."""

    model: DeconvNet
    history: tuple[EpochReport, ...]


def training_phase(layer: int, learning: LearningSpec) -> Phase:
    """What inference moves while `layer` is trained."""
    return Phase(layer=layer, pooling=tuple(range(1 if learning.lower_pooling else layer, layer + 1)))


def moving_filters(layer: int, learning: LearningSpec) -> tuple[int, ...]:
    """The layers whose filters are updated while `layer` is trained, the top one first."""
    return tuple(range(layer, 0, -1)) if learning.lower_filters else (layer,)


def train(
    recipe: Recipe,
    images: ImageSource,
    *,
    engine: str = "auto",
    device: torch.device | str = "cpu",
    on_epoch: Callable[[EpochReport], None] = lambda report: None,
) -> TrainedModel:
    """Train a model by a recipe: each layer in turn, its latents living on from epoch to epoch."""
    model = DeconvNet(recipe.model, seed=recipe.seed).to(device)
    batches = [slice(i, i + recipe.batch_size) for i in range(0, len(images), recipe.batch_size)]
    store = LatentStore(len(batches))
    history: list[EpochReport] = []
    with torch.no_grad():
        for layer, learning in enumerate(recipe.learning, start=1):
            for epoch in range(1, learning.epochs + 1):
                model, report = train_epoch(model, images, batches, store, layer, epoch, learning, engine)
                history.append(report)
                on_epoch(report)
    return TrainedModel(model, tuple(history))


def train_epoch(
    model: DeconvNet,
    images: ImageSource,
    batches: list[slice],
    store: LatentStore,
    layer: int,
    epoch: int,
    learning: LearningSpec,
    engine: str,
) -> tuple[DeconvNet, EpochReport]:
    """Infer every batch, then update the filters."""
    start = time.perf_counter()
    reset = epoch - 1 in learning.reset_at
    phase = training_phase(layer, learning)
    tally = Tally(model.spec.layers[layer - 1].pooled_maps)
    for i, chosen in enumerate(batches):
        latents = store.read(i).to(model.device)
        if reset and latents.p is not None:
            latents = replace(latents, p=torch.zeros_like(latents.p))
        v = images[chosen].to(model.device, model.dtype)
        solution = run_plan(model, v, latents, (phase,), learning.inference, engine)
        store.write(i, solution.latents)
        tally.add(solution)

    def stored() -> Iterator[tuple[Tensor, Latents]]:
        for i, chosen in enumerate(batches):
            yield images[chosen].to(model.device, model.dtype), store.read(i).to(model.device)

    for k in moving_filters(layer, learning):
        model = update_filters(model, k, stored, learning.cg_steps)
    return model, tally.report(layer, epoch, time.perf_counter() - start)


class Tally:
    """Sums over the batches of one epoch."""

    def __init__(self, maps: int) -> None:
        self.images, self.engine = 0, ""
        self.reconstruction = self.penalty = self.nonzeros = 0.0
        self.active = torch.zeros(maps, dtype=torch.bool)

    def add(self, solution: Solution) -> None:
        stats = solution.stats
        self.engine = solution.engine
        self.images += stats.penalty.shape[1]
        self.reconstruction += float(stats.reconstruction[-1].double().sum())
        self.penalty += float(stats.penalty[-1].double().sum())
        self.nonzeros += float(stats.nonzeros[-1].double().sum())
        self.active |= (solution.features != 0).any(0).flatten(1).any(1).cpu()

    def report(self, layer: int, epoch: int, seconds: float) -> EpochReport:
        n = self.images
        return EpochReport(
            layer=layer,
            epoch=epoch,
            reconstruction=self.reconstruction / n,
            penalty=self.penalty / n,
            nonzeros=self.nonzeros / n,
            dead_maps=int((~self.active).sum()),
            seconds=seconds,
            engine=self.engine,
        )
