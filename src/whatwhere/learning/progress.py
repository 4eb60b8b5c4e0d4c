"""How training proceeds, for a person: a live display on a terminal, plain lines in files, scripts and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from whatwhere.learning.reports import BatchReport, EpochReport, TrainingCallbacks
from whatwhere.spec import Recipe

LINE_EVERY = 30.0  # seconds between plain lines within an epoch
Report = TypeVar("Report")


class TrainingProgress:
    """Shows what `train` reports: every epoch in a line; on a terminal also the current batch, within `display`.

    rich is imported here rather than with the module: training without a display does not need it.
    """

    def __init__(self, recipe: Recipe, images: int, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.recipe, self.last_line = recipe, time.monotonic()
        self.engine = ""
        self.console = Console(stderr=True, quiet=quiet, highlight=False, force_jupyter=False)
        self.display = Progress(
            TextColumn("{task.description}\n{task.fields[numbers]}"),
            BarColumn(12),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.work = [spec.epochs * spec.inference.steps * images for spec in recipe.learning]  # image-iterations
        self.task = self.display.add_task("starting", total=sum(self.work), numbers="")

    def attach(self, callbacks: TrainingCallbacks) -> TrainingCallbacks:
        """These callbacks with the display added to them."""
        return replace(
            callbacks,
            on_batch=both(self.on_batch, callbacks.on_batch),
            on_epoch=both(self.on_epoch, callbacks.on_epoch),
        )

    def on_batch(self, report: BatchReport) -> None:
        done = (report.epoch - 1 + report.batch / report.batches) / report.epochs * self.work[report.layer - 1]
        epoch = f"{self._epoch(report)}  batch {report.batch}/{report.batches}"
        speed = self.display.tasks[self.task].speed
        self.display.update(
            self.task,
            completed=sum(self.work[: report.layer - 1]) + done,
            description=f"layer {report.layer} of {self.recipe.model.depth}, {epoch}",
            numbers=costs(report) + ("" if speed is None else f"\n{rate(speed)}"),
        )
        if not self.console.is_terminal and time.monotonic() - self.last_line >= LINE_EVERY:
            self.log(f"layer {report.layer}  {epoch}  {costs(report)}")

    def on_epoch(self, report: EpochReport) -> None:
        if report.engine != self.engine:
            self.engine = report.engine
            self.log(f"engine {report.engine}; costs and non-zeros are per image, cost = reconstruction + penalty")
        self.log(
            f"layer {report.layer}  {self._epoch(report)}  {costs(report)}  {report.dead_maps} dead maps  "
            f"{rate(report.image_iterations_per_second)}  {report.seconds:.1f} s"
        )

    def log(self, line: str) -> None:
        self.last_line = time.monotonic()
        self.console.print(line, soft_wrap=True, markup=False)

    def _epoch(self, report: BatchReport | EpochReport) -> str:
        return f"epoch {report.epoch}/{self.recipe.learning[report.layer - 1].epochs}"


def both(first: Callable[[Report], None], second: Callable[[Report], None]) -> Callable[[Report], None]:
    def call(report: Report) -> None:
        first(report)
        second(report)

    return call


def costs(report: BatchReport | EpochReport) -> str:
    cost = report.reconstruction + report.penalty
    return f"cost {cost:.4g} = {report.reconstruction:.4g} + {report.penalty:.4g}  {report.nonzeros:.1f} non-zeros"


def rate(per_second: float) -> str:
    for unit in ("", "k", "M"):
        if per_second < 1000:
            return f"{per_second:.3g}{unit} image-iterations/s"
        per_second /= 1000
    return f"{per_second:.3g}G image-iterations/s"
