"""How training goes, for a person: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

if TYPE_CHECKING:
    from whatwhere.learning import BatchReport, EpochReport
    from whatwhere.spec import Recipe


class TrainingProgress:
    """Says what `train` reports: every epoch in a line; on a terminal also the batch at hand, until it is over."""

    def __init__(self, recipe: Recipe, images: int, *, quiet: bool = False) -> None:
        self.recipe, self.images = recipe, images
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.phase, self.engine = "starting", ""
        self.batch: BatchReport | None = None
        self.clock = Clock(recipe, images)
        self.live = Live(console=self.console, transient=True, refresh_per_second=4, get_renderable=self.render)

    def __enter__(self) -> TrainingProgress:
        if self.console.is_terminal and not self.console.quiet:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()

    def on_start(self, chosen: str) -> None:
        self.say(chosen)

    def on_batch(self, report: BatchReport) -> None:
        self.clock.count(report)
        self.batch = report
        self.phase = "inferring" if report.batch < report.batches else "updating filters"

    def on_epoch(self, report: EpochReport) -> None:
        self.clock.end_epoch(report)
        self.phase = "writing a checkpoint"
        if report.engine != self.engine:
            self.engine = report.engine
            self.say(f"engine {report.engine}; costs and non-zeros are per image, cost = reconstruction + penalty")
        epochs = self.recipe.learning[report.layer - 1].epochs
        self.say(
            f"layer {report.layer}  epoch {report.epoch}/{epochs}  {costs(report)}  {report.dead_maps} dead maps  "
            f"{rate(report.image_iterations_per_second)}  {report.seconds:.1f} s"
        )

    def say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def render(self) -> Table:
        """The live display: what is done now, how far, what it costs, how fast, how long yet."""
        table = Table.grid(padding=(0, 2))
        if self.batch is None:
            table.add_row(self.phase)
            return table
        at, left = self.batch, self.clock.left()
        table.add_row(
            f"[bold]layer {at.layer} of {self.recipe.model.depth}, {self.phase}[/]",
            f"epoch {at.epoch}/{at.epochs}",
            f"batch {at.batch}/{at.batches}",
            ProgressBar(total=at.batches, completed=at.batch, width=20),
        )
        time_left = "" if left is None else f"{duration(left)} left"
        table.add_row(costs(at), rate(self.clock.rate()), time_left, f"{self.images:,} images")
        return table


class Clock:
    """How fast training goes and how long it will take, at the pace of the layer at hand."""

    def __init__(self, recipe: Recipe, images: int) -> None:
        self.work = [spec.epochs * spec.inference.steps * images for spec in recipe.learning]
        self.done = 0  # image-iterations of the layer at hand, of all its epochs
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

    def rate(self) -> float:
        """Image-iterations per second since this layer began, filter updates and checkpoints included."""
        return self.counted / max(1e-9, time.monotonic() - self.began)

    def left(self) -> float | None:
        """Seconds to the end of training, once there is something to judge by."""
        if not self.counted:
            return None
        return max(0, self.work[self.layer - 1] - self.done + sum(self.work[self.layer :])) / self.rate()


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
