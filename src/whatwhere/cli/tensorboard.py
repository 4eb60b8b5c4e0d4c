"""Epochs as TensorBoard events."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import MissingExtra
from whatwhere.files import disk_errors

if TYPE_CHECKING:
    from whatwhere.learning import EpochReport

SCALARS = ("cost", "reconstruction", "penalty", "nonzeros", "dead_maps", "image_iterations_per_second")


class EventWriter:
    """Writes one point an epoch for each scalar, `layer1/cost` and so on, under the run's `tensorboard` folder.

    The folder is created at the first epoch, so that a training that is rejected leaves nothing behind.
    """

    def __init__(self, run: Path) -> None:
        if find_spec("tensorboard") is None:
            raise MissingExtra("tensorboard", "tensorboard", "--tensorboard")
        self._folder = run / "tensorboard"
        self._writer: Any = None

    def on_epoch(self, report: EpochReport) -> None:
        with disk_errors(f"writing TensorBoard events to {self._folder}", "make the folder writable, or leave it out"):
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(str(self._folder))
            for name in SCALARS:
                self._writer.add_scalar(f"layer{report.layer}/{name}", getattr(report, name), report.epoch)
            self._writer.flush()
