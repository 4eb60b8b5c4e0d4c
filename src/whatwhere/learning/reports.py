"""What training reports, and whom: every batch while it runs, every epoch for the history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

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
