"""How training proceeds, for a person: a live display on a terminal, plain lines in files, scripts and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from whatwhere.learning.callbacks import TrainingCallbacks
from whatwhere.learning.reports import BatchReport, EpochReport, PhaseReport
from whatwhere.spec import Recipe

if TYPE_CHECKING:
    from rich.table import Table

LINE_EVERY = 30.0  # seconds between plain lines within an epoch
Report = TypeVar("Report")


class TrainingProgress:
    """Shows what `train` reports: every epoch in a line; on a terminal also the current batch, while training runs.

    rich is imported here rather than with the module: training without a display does not need it.
    """

    def __init__(self, recipe: Recipe, images: int, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live

        self.recipe, self.images, self.engine = recipe, images, ""
        self.console = Console(stderr=True, quiet=quiet, highlight=False, force_jupyter=False)
        self.phase: PhaseReport | None = None
        self.batch: BatchReport | None = None
        self.clock = Clock(recipe, images)
        self.last_line = time.monotonic()
        self.live = Live(console=self.console, transient=True, refresh_per_second=4, get_renderable=self.render)

    def __enter__(self) -> TrainingProgress:
        if self.console.is_terminal and not self.console.quiet:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()

    def attach(self, callbacks: TrainingCallbacks) -> TrainingCallbacks:
        """These callbacks with the display added to them."""
        return replace(
            callbacks,
            on_start=both(self.on_start, callbacks.on_start),
            on_phase=both(self.on_phase, callbacks.on_phase),
            on_batch=both(self.on_batch, callbacks.on_batch),
            on_epoch=both(self.on_epoch, callbacks.on_epoch),
        )

    def on_start(self, choice: str) -> None:
        self.log(choice)

    def on_phase(self, report: PhaseReport) -> None:
        if report.doing == "inferring":
            self.batch = None  # that of the epoch before
        self.phase = report

    def on_batch(self, report: BatchReport) -> None:
        self.clock.count(report)
        self.batch = report
        if not self.console.is_terminal and time.monotonic() - self.last_line >= LINE_EVERY:
            place = f"epoch {report.epoch}/{report.epochs}  batch {report.batch}/{report.batches}"
            self.log(f"layer {report.layer}  {place}  {costs(report)}")

    def on_epoch(self, report: EpochReport) -> None:
        self.clock.end_epoch(report)
        if report.engine != self.engine:
            self.engine = report.engine
            self.log(f"engine {report.engine}; costs and non-zeros are per image, cost = reconstruction + penalty")
        epochs = self.recipe.learning[report.layer - 1].epochs
        self.log(
            f"layer {report.layer}  epoch {report.epoch}/{epochs}  {costs(report)}  {report.dead_maps} dead maps  "
            f"{rate(report.image_iterations_per_second)}  {report.seconds:.1f} s"
        )

    def log(self, line: str) -> None:
        self.last_line = time.monotonic()
        self.console.print(line, soft_wrap=True, markup=False)

    def render(self) -> Table:
        """The live display: what is done now, how far, what it costs, how fast, how much time is left."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        at, batch = self.phase, self.batch
        if at is None:
            table.add_row("starting")
            return table
        batches = -(-self.images // self.recipe.batch_size)
        done = at.batch if batch is None else batch.batch
        table.add_row(
            f"[bold]layer {at.layer} of {self.recipe.model.depth}, {at.doing}[/]",
            f"epoch {at.epoch}/{self.recipe.learning[at.layer - 1].epochs}",
            f"batch {done}/{batches}",
            ProgressBar(total=batches, completed=done, width=20),
        )
        speed, left = self.clock.rate(), self.clock.left()
        table.add_row(
            "" if batch is None else costs(batch),
            "" if speed is None else rate(speed),
            "" if left is None else f"{duration(left)} left",
            f"{self.images:,} images",
        )
        return table


class Clock:
    """How fast training goes and how long it will take, at the pace of the current layer."""

    def __init__(self, recipe: Recipe, images: int) -> None:
        self.work = [spec.epochs * spec.inference.steps * images for spec in recipe.learning]
        self.done = 0  # image-iterations of the current layer, of all its epochs
        self.layer = 0
        self.began, self.counted = time.monotonic(), 0

    def count(self, report: BatchReport) -> None:
        if report.layer != self.layer:
            self.layer, self.began, self.counted = report.layer, time.monotonic(), 0
        else:  # the first batch only starts the clock: it may have compiled, or followed a checkpoint that was read
            self.counted += report.images * report.steps
        epochs = (report.epoch - 1) + report.batch / report.batches
        self.done = round(epochs / report.epochs * self.work[report.layer - 1])

    def end_epoch(self, report: EpochReport) -> None:
        self.done = report.epoch * report.images * report.steps

    def rate(self) -> float | None:
        """Image-iterations per second since this layer began, with filter updates and checkpoints; None at first."""
        return self.counted / max(1e-9, time.monotonic() - self.began) if self.counted else None

    def left(self) -> float | None:
        """Seconds to the end of training, as soon as they can be estimated."""
        speed = self.rate()
        if speed is None:
            return None
        return max(0, self.work[self.layer - 1] - self.done + sum(self.work[self.layer :])) / speed


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


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
