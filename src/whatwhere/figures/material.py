"""What pictures are drawn from: runs, images, and the latents that a run infers for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from whatwhere.errors import RunError, SpecError
from whatwhere.figures.animation import Snapshot, trace
from whatwhere.figures.cost import read_history
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, load
from whatwhere.spec import InferenceSpec, Phase, Recipe
from whatwhere.spec_toml import read_recipe

MOST_STEPS = 200  # of inference for a picture


@dataclass(frozen=True)
class Run:
    """What a run left in its folder."""

    name: str
    recipe: Recipe
    model: DeconvNet
    history: list[dict[str, Any]]


def read_run(folder: Path) -> Run:
    """Read a run's folder; the history may be missing, as it is where a model was saved by hand."""
    if not folder.is_dir():
        raise RunError(f"{folder} was given as a run; there is no such folder (`whatwhere train` makes one)")
    for name in ("recipe.toml", "model.safetensors"):
        if not (folder / name).is_file():
            raise RunError(f"{folder} has no {name}; expected the folder of a run (`whatwhere train` makes one)")
    history = folder / "history.jsonl"
    return Run(
        name=folder.resolve().name,
        recipe=read_recipe(folder / "recipe.toml"),
        model=load(folder / "model.safetensors"),
        history=read_history(history) if history.is_file() else [],
    )


def training_settings(recipe: Recipe, layer: int) -> InferenceSpec:
    """How the features of a layer were inferred in its training: pictures show them as sparse as they were learned.

    In training an image's features live on from epoch to epoch, so they have had the steps of all epochs since the
    last reset; pictures take as many, up to a limit. The step size is each image's own, so that a picture of one does
    not depend on the others.
    """
    learning = recipe.learning[layer - 1]
    lasting = learning.epochs - max((epoch for epoch in learning.reset_at if epoch < learning.epochs), default=0)
    steps = min(learning.inference.steps * max(1, lasting), max(MOST_STEPS, learning.inference.steps))
    return replace(learning.inference, steps=steps, step_size="image")


@dataclass
class Material:
    """A run, other runs beside it, and images [N, C, H, W] for all of them.

    Latents are inferred when a picture first needs them, by the settings of the run's training.

    image    the image that is taken apart
    feature  the feature of the map of where, counted from 0; None takes the one most often at work
    """

    run: Run
    images: Tensor
    beside: tuple[Run, ...] = ()
    image: int = 0
    feature: int | None = None
    seed: int = 0
    engine: str = "auto"
    _solved: dict[tuple[int, int], Latents] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.image < len(self.images):
            raise SpecError(f"image = {self.image} was given; expected a number from 0 to {len(self.images) - 1}")
        names = [run.name for run in self.runs]
        if len(set(names)) < len(names):
            raise RunError(f"runs named {', '.join(names)} were given; expected folders of different names")

    @property
    def runs(self) -> tuple[Run, ...]:
        return (self.run, *self.beside)

    @property
    def depth(self) -> int:
        return self.run.model.spec.depth

    def latents(self, layer: int, run: Run | None = None) -> Latents:
        """The latents of all images inferred from this layer of a run, the pooling below moving with it."""
        run = run or self.run
        key = id(run), layer
        if key not in self._solved:
            plan = (Phase(layer=layer, update_pooling=tuple(range(1, layer + 1))),)
            settings = training_settings(run.recipe, layer)
            solution = infer(run.model, self.images, settings, plan, engine=self.engine, batch_size=100)
            self._solved[key] = solution.latents
        return self._solved[key]

    def solved(self, count: int | None = None) -> dict[str, tuple[DeconvNet, Latents]]:
        """The model and the top layer's latents of the first images, for every run, by name."""
        return {run.name: (run.model, self.latents(run.model.spec.depth, run)[:count]) for run in self.runs}

    @cached_property
    def steps(self) -> list[Snapshot]:
        """The inference of the image that is taken apart, step by step."""
        return trace(self.run.model, self.images[self.image], training_settings(self.run.recipe, self.depth))
