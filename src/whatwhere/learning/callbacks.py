"""Functions that a training calls on its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whatwhere.learning.reports import BatchReport, EpochReport, PhaseReport


def no_op(*_: Any) -> None:
    """Ignore every argument."""


@dataclass(frozen=True, kw_only=True)
class TrainingCallbacks:
    """Functions that training calls.

    stop      asked after every batch: True ends training with a checkpoint and `TrainingStopped`
    on_start  is given what was chosen, in words
    on_phase  is given what training is doing from now on, a `PhaseReport`
    on_batch, on_epoch  are given the report of every batch and epoch

    >>> epochs = []
    >>> callbacks = ww.TrainingCallbacks(on_epoch=lambda report: epochs.append(report.epoch))
    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": {"each": {"epochs": 2, "inference": {"steps": 2}}}}
    >>> _ = ww.train(ww.override(ww.Recipe.paper(), small), ww.data.load("digits")[:10], callbacks=callbacks)
    >>> epochs
    [1, 2]
    """

    stop: Callable[[], bool] = lambda: False
    on_start: Callable[[str], None] = no_op
    on_phase: Callable[[PhaseReport], None] = no_op
    on_batch: Callable[[BatchReport], None] = no_op
    on_epoch: Callable[[EpochReport], None] = no_op
