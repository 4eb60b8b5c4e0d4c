"""What training tells: of every batch while it goes, of every epoch for the history."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whatwhere.latents import Solution


@dataclass(frozen=True)
class EpochReport:
    """What one epoch of one layer came to; costs and non-zeros are per image.

    dead_maps       maps of the layer that were not active in any image
    images          of the whole set; each was inferred with `steps` steps
    filter_seconds  of `seconds`, those that the update of the filters took
    """

    layer: int
    epoch: int
    reconstruction: float
    penalty: float
    nonzeros: float
    dead_maps: int
    seconds: float
    engine: str
    images: int = 0
    steps: int = 0
    filter_seconds: float = 0.0

    @property
    def cost(self) -> float:
        return self.reconstruction + self.penalty

    @property
    def image_iterations_per_second(self) -> float:
        return self.images * self.steps / self.seconds if self.seconds else 0.0

    def table(self) -> dict[str, Any]:
        """The line of the history."""
        derived = {"cost": self.cost, "image_iterations_per_second": self.image_iterations_per_second}
        return {**asdict(self), **derived}

    @classmethod
    def of(cls, table: dict[str, Any]) -> EpochReport:
        return cls(**{f.name: table[f.name] for f in fields(cls) if f.name in table})


@dataclass(frozen=True)
class BatchReport:
    """How far an epoch is; costs and non-zeros are per image of the batches inferred last."""

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


class Measured(NamedTuple):
    """Sums over one batch.

    nothing   what the batch costs with all features at 0
    overflow  features too large for the type that they are kept in
    stop      above 0 where someone asked to stop
    """

    reconstruction: float
    penalty: float
    nonzeros: float
    images: float
    nothing: float
    overflow: float
    stop: float


class Tally:
    """Sums over the batches of one epoch.

    sums    reconstruction, penalty, non-zeros and images over all processes, and seconds: [5], float64, on the host
    active  which maps have been active in this process's batches, [B], on the device
    """

    def __init__(self, maps: int, device: torch.device) -> None:
        self.sums = torch.zeros(5, dtype=torch.float64)
        self.active = torch.zeros(maps, dtype=torch.bool, device=device)

    def measure(self, solution: Solution, nothing: Tensor, kept: torch.dtype) -> Tensor:
        """`Measured` of one batch, left on the device: [7], float64."""
        stats, p = solution.stats, solution.features
        self.active |= (p != 0).any(0).flatten(1).any(1)
        overflow = (p.abs() > torch.finfo(kept).max).sum() if kept == torch.float16 else torch.zeros_like(nothing)
        ends = (stats.reconstruction[-1], stats.penalty[-1], stats.nonzeros[-1])
        reconstruction, penalty, nonzeros = (end.sum(dtype=torch.float64) for end in ends)
        images = torch.full_like(penalty, len(p))
        return torch.stack(
            [reconstruction, penalty, nonzeros, images, nothing.double(), overflow.double(), torch.zeros_like(penalty)]
        )

    def report(
        self, layer: int, epoch: int, steps: int, active: Tensor, engine: str, filter_seconds: float
    ) -> EpochReport:
        reconstruction, penalty, nonzeros, images, seconds = self.sums.tolist()
        return EpochReport(
            layer=layer,
            epoch=epoch,
            reconstruction=reconstruction / images,
            penalty=penalty / images,
            nonzeros=nonzeros / images,
            dead_maps=int((~active).sum()),
            seconds=seconds,
            engine=engine,
            images=int(images),
            steps=steps,
            filter_seconds=filter_seconds,
        )
