"""How far training has come: the model, the position in the recipe, sums over the epoch in progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from whatwhere.learning.reports import EpochReport
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.spec import Recipe


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
