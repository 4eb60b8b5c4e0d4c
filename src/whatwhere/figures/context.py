"""What figures are drawn from: trained models, images, and the latents inferred for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from whatwhere.errors import RunError, SpecError
from whatwhere.figures.animation import Snapshot, trace
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.learning import TrainedRun
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, LineSearch, Phase, Recipe

MAX_STEPS = 200  # of inference for a figure
BATCH_SIZE = 8  # images inferred between two reports of progress

Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def training_settings(recipe: Recipe, layer: int) -> InferenceSpec:
    """The settings of a layer's training, so that figures show features as sparse as they were learned.

    In training, the features of an image continue from epoch to epoch, so they receive the steps of all epochs since
    the last reset. Figures use the same number of steps, up to a limit, and a separate step size for each image, so
    that an image looks the same whatever other images are drawn.
    """
    learning = recipe.learning[layer - 1]
    since_reset = learning.epochs - max((epoch for epoch in learning.reset_at if epoch < learning.epochs), default=0)
    steps = min(learning.inference.steps * max(1, since_reset), max(MAX_STEPS, learning.inference.steps))
    return replace(learning.inference, steps=steps, step=LineSearch(momentum=learning.inference.momentum))


@dataclass
class FigureContext:
    """A run, other runs to compare it with, and images for all of them.

    Latents are inferred when a figure first needs them, with the settings of the run's training.

    run       the run that is drawn
    images    [N, C, H, W]
    others    runs that it is compared with
    image     index of the image that is decomposed
    feature   index of the feature whose positions are drawn; None selects the one that is active most often
    seed      of random choices
    engine    of the inference
    stage     makes the display of progress for a slow part: called with a title and the number of pieces

    >>> run = ww.read_run("mnist")
    >>> context = ww.figures.FigureContext(run, ww.data.load("digits", split="test")[:2])
    >>> context.depth
    2
    """

    run: TrainedRun
    images: Tensor
    others: tuple[TrainedRun, ...] = ()
    image: int = 0
    feature: int | None = None
    seed: int = 0
    engine: str = "auto"
    stage: Stage = lambda title, total: nullcontext(lambda pieces: None)
    _latents: dict[tuple[int, int], Latents] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.image < len(self.images):
            raise SpecError(f"image = {self.image} was given; expected a number from 0 to {len(self.images) - 1}")
        names = [run.name for run in self.runs]
        if len(set(names)) < len(names):
            raise RunError(f"runs named {', '.join(names)} were given; expected different names")

    @property
    def runs(self) -> tuple[TrainedRun, ...]:
        """The run and the others."""
        return (self.run, *self.others)

    @property
    def depth(self) -> int:
        """The number of layers of the run's model."""
        return self.run.model.spec.depth

    def latents(self, layer: int, run: TrainedRun | None = None) -> Latents:
        """The latents of all images inferred from this layer of a run, updating the pooling of all layers up to it."""
        run = run or self.run
        key = id(run), layer
        if key not in self._latents:
            plan = (Phase(layer=layer, update_pooling=tuple(range(1, layer + 1))),)
            settings = training_settings(run.recipe, layer)
            title = f"inferring {len(self.images)} images with {run.name}, layer {layer}"
            with self.stage(title, len(self.images)) as advance:
                self._latents[key] = infer(
                    run.model,
                    self.images,
                    settings,
                    plan,
                    engine=self.engine,
                    batch_size=BATCH_SIZE,
                    progress=advance,
                ).latents
        return self._latents[key]

    def solutions(self, count: int | None = None) -> dict[str, tuple[DeconvNet, Latents]]:
        """The model and the top layer's latents of the first `count` images for every run: name → both."""
        return {run.name: (run.model, self.latents(run.model.spec.depth, run)[:count]) for run in self.runs}

    @cached_property
    def snapshots(self) -> list[Snapshot]:
        """The inference of the decomposed image, step by step."""
        settings = training_settings(self.run.recipe, self.depth)
        with self.stage("following the inference of one image", settings.steps) as advance:
            return trace(self.run.model, self.images[self.image], settings, progress=advance)
