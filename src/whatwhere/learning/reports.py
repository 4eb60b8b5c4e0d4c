"""How far training has come, and what it reports: every batch while it runs, every epoch for the
history; a display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.engines.compiled import COMPILED
from whatwhere.errors import listed, plural
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.progress import no_op, time_left
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked
from whatwhere.spec.toml import build


@dataclass(frozen=True)
class EpochReport(Checked):
    """The outcome of one epoch of one layer; costs and non-zeros are per image.

    Parameters
    ----------
    layer, epoch
        number of the layer and of the epoch, from 1
    reconstruction, penalty
        the two terms of the cost
    nonzeros
        active features
    dead_maps
        maps of the layer that were not active in any image
    seconds
        time of the epoch
    engine
        the engine that inferred
    images
        number of images in the entire set; each was inferred with `steps` steps
    filter_seconds
        time of the filter update, as a part of `seconds`

    Examples
    --------
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
        """Images times steps per second; 0 if no time was measured."""
        return self.images * self.steps / self.seconds if self.seconds else 0.0

    def table(self) -> dict[str, object]:
        """Return the line of the history."""
        derived = {
            "cost": self.cost,
            "image_iterations_per_second": self.image_iterations_per_second,
        }
        return {**asdict(self), **derived}

    @classmethod
    def of(cls, table: object) -> EpochReport:
        """Return the report in a line of the history; raises a ValueError for anything else."""
        given = table if isinstance(table, dict) else {}
        return build(cls, {f.name: given[f.name] for f in fields(cls) if f.name in given})


@dataclass(frozen=True)
class BatchReport:
    """How far an epoch is; costs and non-zeros are per image of the last batch.

    Parameters
    ----------
    layer, epoch, epochs
        where training is, and the number of epochs of this layer
    batch, batches
        batches inferred in this epoch, and all of them
    images, steps
        images of the batch, and steps of inference for each
    reconstruction, penalty, nonzeros
        the two terms of the cost, and active features

    Examples
    --------
    >>> done = []
    >>> callbacks = ww.TrainingCallbacks(on_batch=lambda b: done.append(b.batch / b.batches))
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


@dataclass(frozen=True, kw_only=True)
class TrainingCallbacks:
    """Functions that training calls.

    Parameters
    ----------
    stop
        called after every batch; True ends training with a checkpoint and `TrainingStopped`
    on_batch, on_epoch
        called with the report of every batch and epoch

    Examples
    --------
    >>> epochs = []
    >>> callbacks = ww.TrainingCallbacks(on_epoch=lambda report: epochs.append(report.epoch))
    >>> short = {"each": {"epochs": 2, "inference": {"steps": 2}}}
    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": short}
    >>> recipe = ww.override(ww.Recipe.paper(), small)
    >>> _ = ww.train(ww.data.load("digits")[:10], recipe, callbacks=callbacks)
    >>> epochs
    [1, 2]
    """

    stop: Callable[[], bool] = lambda: False
    on_batch: Callable[[BatchReport], None] = no_op
    on_epoch: Callable[[EpochReport], None] = no_op


@dataclass(frozen=True)
class TrainingState:
    """The model, and what comes next; past the top layer training is finished.

    Parameters
    ----------
    batch
        the first batch of the epoch that is not inferred yet; above 0 only if training was stopped
    stats
        statistics of the epoch in progress, if there is one
    memory
        what the algorithm keeps from batch to batch within a layer: tensors by name
    """

    model: DeconvNet
    layer: int
    epoch: int
    batch: int = 0
    stats: EpochStats | None = None
    memory: dict[str, Tensor] = field(default_factory=dict)
    history: tuple[EpochReport, ...] = ()


def first_epoch(recipe: Recipe, layer: int = 1, epoch: int = 1) -> tuple[int, int]:
    """Return this layer and epoch, or the first after them that the recipe has; past the top layer
    training is finished."""
    while layer <= recipe.model.depth and epoch > recipe.learning[layer - 1].epochs:
        layer = layer + 1
        epoch = 1
    return layer, epoch


def measure_batch(solution: Solution, zero_cost: Tensor) -> Tensor:
    """Compute sums over one batch, [5], left on the device: the two terms of the cost, non-zeros,
    images, and `zero_cost`."""
    stats = solution.stats
    sums = [
        part[-1].sum(dtype=torch.float64)
        for part in (stats.reconstruction, stats.penalty, stats.nonzeros)
    ]
    images = torch.full_like(sums[0], len(solution.features))
    return torch.stack([*sums, images, zero_cost.double()])


def no_sums(*shape: int) -> Tensor:
    """Return zeros in place of what `measure_batch` returns, in a tensor [*shape, 5]."""
    return torch.zeros(*shape, 5, dtype=torch.float64)


def no_batch() -> AsyncHostCopy:
    """Return the sums of a process that has no batch in a round."""
    return AsyncHostCopy(no_sums())


class ImageMeans(TypedDict):
    """The two terms of the cost and the non-zeros, per image; and the number of images."""

    reconstruction: float
    penalty: float
    nonzeros: float
    images: int


def per_image(sums: Tensor) -> ImageMeans:
    """Return the two terms of the cost and the non-zeros, per image, from sums [4 or 5]; and the
    number of images."""
    reconstruction, penalty, nonzeros, images = sums[:4].tolist()
    return ImageMeans(
        reconstruction=reconstruction / images,
        penalty=penalty / images,
        nonzeros=nonzeros / images,
        images=int(images),
    )


@dataclass
class EpochStats:
    """The statistics of one epoch so far.

    Parameters
    ----------
    active
        which maps have been active, [B], on the device
    sums
        sums over its batches, as `measure_batch` returns them, [4]
    """

    active: Tensor
    sums: Tensor = field(default_factory=lambda: torch.zeros(4, dtype=torch.float64))
    seconds: float = 0.0

    def tensors(self) -> dict[str, Tensor]:
        """Return the statistics as tensors for a checkpoint."""
        return {
            "epoch.active": self.active,
            "epoch.sums": F.pad(self.sums, (0, 1), value=self.seconds),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], device: torch.device) -> EpochStats | None:
        """Return the statistics from `tensors`; None in the checkpoint of a complete epoch."""
        if "epoch.active" not in tensors:
            return None
        sums = tensors["epoch.sums"]
        return cls(tensors["epoch.active"].to(device), sums[:4], float(sums[4]))


class AsyncHostCopy:
    """A small tensor on its way to the host; only `value` waits for it."""

    def __init__(self, tensor: Tensor) -> None:
        self._host = tensor
        self._copied = None
        if tensor.is_cuda:
            self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def value(self) -> Tensor:
        if self._copied is not None:
            self._copied.synchronize()
        return self._host


def _missed_resets(recipe: Recipe) -> list[str]:
    """Return a line for every reset of the features that never happens, because it is after the
    last epoch."""
    missed: dict[tuple[int, int], list[int]] = {}
    for layer, learning in enumerate(recipe.learning, start=1):
        for reset in learning.reset_at:
            if reset >= learning.epochs:
                missed.setdefault((reset, learning.epochs), []).append(layer)
    lines = []
    for (reset, epochs), layers in missed.items():
        have = f"layer {layers[0]} has"
        if len(layers) > 1:
            have = f"layers {listed(layers)} have"
        lines.append(
            f"The reset of the features after epoch {reset} never happens: {have}"
            f" {plural(epochs, 'epoch')}. Set learning.each.update.reset_at to earlier epochs, or"
            " to []."
        )
    return lines


class TrainingProgress:
    """Shows what `train` reports: every epoch in a line; on a terminal also the current batch,
    within `display`.

    rich is imported here rather than with the module: training without a display does not need it.
    """

    def __init__(self, recipe: Recipe, given: TrainingCallbacks) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.recipe = recipe
        self.given = given
        self.engine = ""
        self.console = Console(stderr=True, highlight=False, force_jupyter=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(12),
            TimeRemainingColumn(compact=True),
        )
        self.display = Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal
        )
        self.compiled = COMPILED.functions
        self.image = "window" if recipe.model.for_signals else "image"
        self.work = [spec.epochs * spec.inference.steps for spec in recipe.learning]
        for line in _missed_resets(recipe):
            self._log(line)
        self.task = self.display.add_task("starting", total=sum(self.work))

    def callbacks(self) -> TrainingCallbacks:
        """Return the given callbacks with the display added to them."""
        return replace(self.given, on_batch=self._on_batch, on_epoch=self._on_epoch)

    def _on_batch(self, report: BatchReport) -> None:
        done = (
            (report.epoch - 1 + report.batch / report.batches)
            / report.epochs
            * self.work[report.layer - 1]
        )
        title = f"{self._epoch(report)}, batch {report.batch}/{report.batches}\n{costs(report)}"
        self.display.update(
            self.task, completed=sum(self.work[: report.layer - 1]) + done, description=title
        )
        self.given.on_batch(report)

    def _on_epoch(self, report: EpochReport) -> None:
        if report.engine != self.engine:
            self.engine = report.engine
            self._log(
                f"engine {report.engine}; costs and non-zeros per {self.image}, cost ="
                " reconstruction + penalty"
            )
        speed = f"{report.image_iterations_per_second:,.0f} {self.image}-iterations/s"
        words = f"{plural(report.dead_maps, 'dead map')}  {speed}  {report.seconds:.1f} s"
        self._log(f"{self._epoch(report)}  {costs(report)}  {words}{self._remark(report)}")
        self.given.on_epoch(report)

    def _remark(self, report: EpochReport) -> str:
        """Return that this epoch compiled machine code; otherwise, how long all other epochs take.

        A step of a later layer takes as long as one of this layer, or longer.
        """
        compiled = COMPILED.functions - self.compiled
        self.compiled = COMPILED.functions
        if compiled:
            return " (with compiling)"
        layer = report.layer - 1
        steps = self.recipe.learning[layer].inference.steps
        later = sum(self.work[layer + 1 :])
        left = self.work[layer] - report.epoch * steps + later
        if left <= 0 or steps == 0:
            return ""
        return f"  {'at least' if later else 'about'} {time_left(left / steps * report.seconds)}"

    def _log(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False)

    def _epoch(self, report: BatchReport | EpochReport) -> str:
        return (
            f"layer {report.layer}  epoch"
            f" {report.epoch}/{self.recipe.learning[report.layer - 1].epochs}"
        )


def costs(report: BatchReport | EpochReport) -> str:
    cost = report.reconstruction + report.penalty
    return (
        f"cost {cost:.4g} = {report.reconstruction:.4g} + {report.penalty:.4g} "
        f" {report.nonzeros:.1f} non-zeros"
    )
