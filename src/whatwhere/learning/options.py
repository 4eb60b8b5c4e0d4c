"""What `train` is given besides a recipe and images: settings that do not change the outcome, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from whatwhere.errors import SpecError
from whatwhere.learning.reports import BatchReport, EpochReport, PhaseReport


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a training runs; the recipe says what it computes.

    engine            'auto' takes the fastest that supports the model
    device            'auto' takes a GPU where there is one
    store             where latents wait for the next epoch: 'device', 'ram', 'file', or 'auto', the fastest that fits
    latent_dtype      the type latents are stored in: float32 by default, float16 and bfloat16 take half the room
    checkpoint_every  epochs from one checkpoint to the next; 0 writes one only when stopped; None writes one every
                      epoch, or as seldom as limits them to a tenth of the time
    timeout           seconds to wait for another process that does not answer
    notes             plain values for the checkpoint, such as where the images came from

    >>> ww.TrainingOptions(engine="reference", device="cpu", checkpoint_every=5).store
    'auto'
    """

    engine: str = "auto"
    device: torch.device | str = "auto"
    store: str = "auto"
    latent_dtype: str | torch.dtype | None = None
    checkpoint_every: int | None = None
    timeout: float = 120.0
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.checkpoint_every is not None and self.checkpoint_every < 0:
            raise SpecError(
                f"checkpoint_every = {self.checkpoint_every} was given; expected a number of epochs, or 0 for none"
            )
        if not 1 <= self.timeout < 1e6:
            raise SpecError(f"timeout = {self.timeout} was given; expected a number of seconds from 1 to 1,000,000")


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
