"""Sums over a batch and over an epoch, and their way from the device to the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from whatwhere.model.solution import Solution

SUMS = ("reconstruction", "penalty", "nonzeros", "images", "seconds")  # of EpochStats, as saved in checkpoints


class BatchStats(NamedTuple):
    """Sums over one batch.

    zero_cost  what the batch costs with all features at 0
    stop       above 0 if someone asked to stop
    """

    reconstruction: float
    penalty: float
    nonzeros: float
    images: float
    zero_cost: float
    stop: float


def measure_batch(solution: Solution, zero_cost: Tensor) -> Tensor:
    """`BatchStats` of one batch, left on the device: [6], float64."""
    stats, p = solution.stats, solution.features
    sums = {
        "reconstruction": stats.reconstruction[-1].sum(dtype=torch.float64),
        "penalty": stats.penalty[-1].sum(dtype=torch.float64),
        "nonzeros": stats.nonzeros[-1].sum(dtype=torch.float64),
        "images": torch.full_like(zero_cost, len(p)),
        "zero_cost": zero_cost,
        "stop": torch.zeros_like(zero_cost),
    }
    return torch.stack([sums[name].double() for name in BatchStats._fields])


@dataclass
class EpochStats:
    """Sums over the batches of one epoch so far, over all processes.

    active  which maps have been active in this process's batches, [B], on the device
    """

    active: Tensor
    reconstruction: float = 0.0
    penalty: float = 0.0
    nonzeros: float = 0.0
    images: float = 0.0
    seconds: float = 0.0

    @classmethod
    def zero(cls, maps: int, device: torch.device) -> EpochStats:
        return cls(torch.zeros(maps, dtype=torch.bool, device=device))

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
        sums = {f"epoch.{name}": torch.tensor(getattr(self, name), dtype=torch.float64) for name in SUMS}
        return {"epoch.active": self.active, **sums}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], device: torch.device) -> EpochStats | None:
        """What `tensors` gave; None in the checkpoint of a complete epoch."""
        if "epoch.active" not in tensors:
            return None
        return cls(tensors["epoch.active"].to(device), *(float(tensors[f"epoch.{name}"]) for name in SUMS))


class AsyncHostCopy:
    """A small tensor on its way to the host; only `value` waits for it."""

    def __init__(self, tensor: Tensor) -> None:
        self._copied: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._copied = cast(Any, torch.cuda.Event)()  # its constructor has no types
            self._copied.record()
        else:
            self._host = tensor

    def value(self) -> Tensor:
        if self._copied is not None:
            self._copied.synchronize()
        return self._host
