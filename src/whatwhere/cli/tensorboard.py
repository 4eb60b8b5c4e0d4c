"""Epochs as TensorBoard events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import MissingExtra

if TYPE_CHECKING:
    from whatwhere.learning import EpochReport

SCALARS = ("cost", "reconstruction", "penalty", "nonzeros", "dead_maps", "image_iterations_per_second")


class EventWriter:
    """Writes one point an epoch for each scalar, `layer1/cost` and so on, under the run's `tensorboard` folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "tensorboard", "--tensorboard") from None
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def on_epoch(self, report: EpochReport) -> None:
        for name in SCALARS:
            self._writer.add_scalar(f"layer{report.layer}/{name}", getattr(report, name), report.epoch)
        self._writer.flush()
