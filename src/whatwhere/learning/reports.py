"""How far training has come, and what it reports: every batch while it runs, every epoch for the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.spec import Recipe

LARGEST = 1e300  # of the numbers in a history


@dataclass(frozen=True)
class EpochReport:
    """The outcome of one epoch of one layer; costs and non-zeros are per image.

    layer, epoch    which one; both count from 1
    reconstruction, penalty  the two terms of the cost
    nonzeros        active features
    dead_maps       maps of the layer that were not active in any image
    seconds         that the epoch took
    engine          that inferred
    images          of the entire set; each was inferred with `steps` steps
    filter_seconds  of `seconds`, those that the update of the filters took

    >>> EpochReport(layer=1, epoch=3, reconstruction=10.5, penalty=4.0, nonzeros=31.0).cost
    14.5
    """

    layer: int
    epoch: int
    reconstruction: float
    penalty: float
    nonzeros: float
    dead_maps: int = 0
    seconds: float = 0.0
    engine: str = ""
    images: int = 0
    steps: int = 0
    filter_seconds: float = 0.0

    @property
    def cost(self) -> float:
        """Reconstruction and penalty, per image."""
        return self.reconstruction + self.penalty

    @property
    def image_iterations_per_second(self) -> float:
        """Images times steps in a second; 0 if no time was measured."""
        return self.images * self.steps / self.seconds if self.seconds else 0.0

    def table(self) -> dict[str, Any]:
        """The line of the history."""
        derived = {"cost": self.cost, "image_iterations_per_second": self.image_iterations_per_second}
        return {**asdict(self), **derived}

    @classmethod
    def of(cls, table: Any) -> EpochReport:
        """The report of a line of the history; a ValueError for what is none."""
        given = table if isinstance(table, dict) else {}
        wrong = [f.name for f in fields(cls) if not _is_valid(given.get(f.name, f.default), f.name)]
        if wrong:
            raise ValueError(f"no {'text' if wrong == ['engine'] else 'number'} for {', '.join(wrong)}")
        return cls(**{f.name: given[f.name] for f in fields(cls) if f.name in given})


def _is_valid(value: Any, name: str) -> bool:
    if name == "engine":
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST  # NaN is not


@dataclass(frozen=True)
class BatchReport:
    """How far an epoch is; costs and non-zeros are per image of the last batch.

    layer, epoch, epochs  where training is, and the number of epochs of this layer
    batch, batches        batches inferred in this epoch, and all of them
    images, steps         images of the batch, and steps of inference for each
    reconstruction, penalty, nonzeros  the two terms of the cost, and active features

    >>> done = []
    >>> callbacks = ww.TrainingCallbacks(on_batch=lambda report: done.append(report.batch / report.batches))
    """

    layer: int
    epoch: int
    epochs: int
    batch: int
    batches: int
    images: int
    steps: int
    reconstruction: float
    penalty: float
    nonzeros: float


def no_op(*_: Any) -> None:
    """Ignore every argument."""


@dataclass(frozen=True, kw_only=True)
class TrainingCallbacks:
    """Functions that training calls.

    stop  asked after every batch: True ends training with a checkpoint and `TrainingStopped`
    on_batch, on_epoch  are given the report of every batch and epoch

    >>> epochs = []
    >>> callbacks = ww.TrainingCallbacks(on_epoch=lambda report: epochs.append(report.epoch))
    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": {"each": {"epochs": 2, "inference": {"steps": 2}}}}
    >>> _ = ww.train(ww.data.load("digits")[:10], ww.override(ww.Recipe.paper(), small), callbacks=callbacks)
    >>> epochs
    [1, 2]
    """

    stop: Callable[[], bool] = lambda: False
    on_batch: Callable[[BatchReport], None] = no_op
    on_epoch: Callable[[EpochReport], None] = no_op


@dataclass(frozen=True)
class TrainingState:
    """The model, and what comes next; past the top layer training is finished.

    batch    the first batch of the epoch that is not inferred yet; above 0 only if training was stopped
    stats    of the epoch in progress, if there is one
    memory   of the algorithm within a layer: tensors by name
    """

    model: DeconvNet
    layer: int
    epoch: int
    batch: int = 0
    stats: EpochStats | None = None
    memory: dict[str, Tensor] = field(default_factory=dict)
    history: tuple[EpochReport, ...] = ()

    def after(self, recipe: Recipe) -> tuple[int, int]:
        """Layer and epoch that follow this epoch."""
        return first_epoch(recipe, self.layer, self.epoch + 1)


def first_epoch(recipe: Recipe, layer: int = 1, epoch: int = 1) -> tuple[int, int]:
    """This layer and epoch, or the first after them that the recipe has; past the top layer training is finished."""
    while layer <= recipe.model.depth and epoch > recipe.learning[layer - 1].epochs:
        layer, epoch = layer + 1, 1
    return layer, epoch


class BatchStats(NamedTuple):
    """Sums over one batch; `zero_cost` is what the batch costs with all features at 0."""

    reconstruction: float
    penalty: float
    nonzeros: float
    images: float
    zero_cost: float


def measure_batch(solution: Solution, zero_cost: Tensor) -> Tensor:
    """`BatchStats` of one batch, left on the device: [5], float64."""
    stats = solution.stats
    sums = [part[-1].sum(dtype=torch.float64) for part in (stats.reconstruction, stats.penalty, stats.nonzeros)]
    return torch.stack([*sums, torch.full_like(sums[0], len(solution.features)), zero_cost.double()])


@dataclass
class EpochStats:
    """Sums over the batches of one epoch so far.

    active  which maps have been active, [B], on the device
    """

    active: Tensor
    reconstruction: float = 0.0
    penalty: float = 0.0
    nonzeros: float = 0.0
    images: float = 0.0
    seconds: float = 0.0

    def add(self, batch: BatchStats) -> None:
        self.reconstruction += batch.reconstruction
        self.penalty += batch.penalty
        self.nonzeros += batch.nonzeros
        self.images += batch.images

    def add_active(self, p: Tensor) -> None:
        """Note the maps that are active in the features p [N, B, H, W]."""
        self.active |= (p != 0).any(0).flatten(1).any(1)

    def tensors(self) -> dict[str, Tensor]:
        """As a checkpoint holds it."""
        sums = [self.reconstruction, self.penalty, self.nonzeros, self.images, self.seconds]
        return {"epoch.active": self.active, "epoch.sums": torch.tensor(sums, dtype=torch.float64)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], device: torch.device) -> EpochStats | None:
        """What `tensors` gave; None in the checkpoint of a complete epoch."""
        if "epoch.active" not in tensors:
            return None
        return cls(tensors["epoch.active"].to(device), *tensors["epoch.sums"].tolist())


class AsyncHostCopy:
    """A small tensor on its way to the host; only `value` waits for it."""

    def __init__(self, tensor: Tensor) -> None:
        self._host, self._copied = tensor, None
        if tensor.is_cuda:
            self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._copied = cast(Any, torch.cuda.Event)()  # its constructor has no types
            self._copied.record()

    def value(self) -> Tensor:
        if self._copied is not None:
            self._copied.synchronize()
        return self._host
