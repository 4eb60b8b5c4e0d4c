"""What training reports: every batch while it runs, every epoch for the history."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Activity = Literal["inferring", "updating filters", "writing a checkpoint"]


@dataclass(frozen=True)
class EpochReport:
    """The outcome of one epoch of one layer; costs and non-zeros are per image.

    dead_maps       maps of the layer that were not active in any image
    images          of the entire set; each was inferred with `steps` steps
    filter_seconds  of `seconds`, those that the update of the filters took
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


@dataclass(frozen=True)
class PhaseReport:
    """What training is doing from now on; `batch` batches of the epoch are inferred."""

    layer: int
    epoch: int
    batch: int
    doing: Activity
