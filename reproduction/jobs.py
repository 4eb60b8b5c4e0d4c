"""What is to be measured: a job holds the images and every setting that determine its result.

    TrainingJob     train a model                     → TrainingResult
    EvaluationJob   an error rate with all labels     → EvaluationResult
    FewLabelJob     error rates with a few labels     → FewLabelResult
    RecordedJob     measured by a program that is gone → RecordedResult

Jobs are values: two that are equal have the same result, whichever table asks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from reproduction.baselines import Baseline
from reproduction.deskew import deskewed
from whatwhere import data
from whatwhere.data import Images
from whatwhere.errors import InvalidSetting
from whatwhere.spec import DescriptorSpec, InferenceSpec, Recipe

EvalSplit = Literal["test", "validation"]


def require(condition: bool, given: str, expected: str) -> None:
    """Raise an error that says what was given and what was expected, unless a condition holds."""
    if not condition:
        raise InvalidSetting(given, expected)


@dataclass(frozen=True)
class DataSpec:
    """Images to learn from and images to evaluate on.

    name        of a set in the catalogue
    eval_split  evaluate on its 'test' images, or on 'validation' images: the last sixth of the
                training images, which are then not learned from
    limit       only so many of each; None takes all
    deskew      make every image upright first (`data.deskew`)
    both_views  images as they are and upright, described side by side
    """

    name: str
    eval_split: EvalSplit = "test"
    limit: int | None = None
    deskew: bool = False
    both_views: bool = False

    def __post_init__(self) -> None:
        require(
            not (self.deskew and self.both_views),
            "deskew = true with both_views = true",
            "one of them",
        )

    def views(self) -> tuple[DataSpec, ...]:
        """The same images in one view at a time, each of which has models of its own."""
        if not self.both_views:
            return (self,)
        one = replace(self, both_views=False)
        return one, replace(one, deskew=True)

    def load(self) -> tuple[Images, Images]:
        """Training images and evaluation images, in one view."""
        require(not self.both_views, "both_views = true", "one of `views()`")
        training = data.load(self.name)
        if self.eval_split == "test":
            sets = training, data.load(self.name, split="test")
        else:
            # of 60,000, the paper's 50,000 and 10,000
            rows, cut = (
                np.arange(len(training)),
                len(training) * 5 // 6,
            )
            name = training.name
            sets = (
                training.subset(rows[:cut], f"{name}[:{cut}]"),
                training.subset(rows[cut:], f"{name}[{cut}:]"),
            )
        if self.limit is not None:
            first, second = (
                images.subset(np.arange(min(self.limit, len(images)))) for images in sets
            )
            sets = first, second
        return (deskewed(sets[0]), deskewed(sets[1])) if self.deskew else sets

    def checksums(self) -> list[str]:
        """The SHA-256 sums of the set's files: they identify its images and labels."""
        return data.checksums(self.name)


@dataclass(frozen=True)
class ModelFeatures:
    """Features of trained models, side by side.

    recipe         of the first
    ensemble_size  how many of each recipe, of its seed and the next ones
    other_recipes  those of the others
    """

    recipe: Recipe
    ensemble_size: int = 1
    other_recipes: tuple[Recipe, ...] = ()

    def recipes(self) -> list[Recipe]:
        """One recipe for each model."""
        seeds = range(self.ensemble_size)
        return [
            replace(recipe, seed=recipe.seed + i)
            for recipe in (self.recipe, *self.other_recipes)
            for i in seeds
        ]


@dataclass(frozen=True)
class TrainingJob:
    """Train a model by a recipe. How the model is used afterwards is left out, so that all uses
    share the training."""

    data: DataSpec
    recipe: Recipe

    def __post_init__(self) -> None:
        training = replace(
            self.recipe, inference=InferenceSpec(), plan=(), descriptor=DescriptorSpec()
        )
        object.__setattr__(self, "recipe", training)


@dataclass(frozen=True)
class ClassifierSpec:
    """The SVM: linear on images as they are, unless something else is asked for.

    whiten         rows are whitened first, with this share of the mean variance added
                   (`fit_whitening`); 0: not at all
    dual           solved by the support vectors: faster for wide rows, and what the settings below
                   need
    widths         of a Gaussian kernel, one of which is chosen with C; empty for a linear SVM
    virtual_shift  support vectors shifted by so many pixels in four directions are learned from,
                   too; 0: none
    virtual_turn   and turned by so many degrees to either side; 0: none
    average_views  an evaluated image is moved in the same ways, and its scores are averaged over it
                   and its moves
    whiten_choices with few labels, one of these is chosen in place of `whiten`, with C; empty:
    `whiten` itself
    """

    whiten: float = 0.0
    dual: bool = False
    widths: tuple[float, ...] = ()
    virtual_shift: int = 0
    virtual_turn: float = 0.0
    average_views: bool = False
    whiten_choices: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        moves = {"virtual_shift": self.virtual_shift, "virtual_turn": self.virtual_turn}
        others = {"widths": self.widths, **moves, "whiten_choices": self.whiten_choices}
        given = [f"{name} = {value}" for name, value in others.items() if value]
        require(self.dual or not given, " and ".join(given), "dual = true with them")
        require(
            any(moves.values()) or not self.average_views,
            "average_views = true without moves",
            "a virtual_shift or a virtual_turn with it",
        )
        for name, share in [
            ("whiten", self.whiten),
            *(("whiten_choices", share) for share in self.whiten_choices),
        ]:
            require(0 <= share < float("inf"), f"{name} = {share}", "a finite number of at least 0")


LINEAR = ClassifierSpec()


@dataclass(frozen=True)
class EvaluationJob:
    """The error rate of an SVM with all labels; its C is chosen from this grid, on validation
    images."""

    data: DataSpec
    features: ModelFeatures | Baseline
    C: tuple[float, ...]
    classifier: ClassifierSpec = LINEAR


@dataclass(frozen=True)
class FewLabelJob:
    """The error rates of linear SVMs that learn from `labels` labels, over several draws.

    dual    as for all labels
    whiten_choices  shares of whitening, one of which is chosen with C within the drawn labels; 0:
                    rows as they are
    """

    data: DataSpec
    features: ModelFeatures | Baseline
    C: tuple[float, ...]
    labels: int
    dual: bool = False
    whiten_choices: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        require(
            self.dual or self.whiten_choices == (0.0,),
            f"whiten_choices = {self.whiten_choices}",
            "dual = true with them",
        )


@dataclass(frozen=True)
class RecordedJob:
    """What was measured by a program that the project no longer has: its result stays, under the
    name of its method.

    labels  how many of them it learned from; 0: all
    """

    data: DataSpec
    method: str
    labels: int
    seed: int


MeasurableJob = TrainingJob | EvaluationJob | FewLabelJob
Job = MeasurableJob | RecordedJob


def seeds_of(job: Job) -> tuple[int, ...]:
    """The seeds of the models that a job trains or uses; a baseline has none."""
    if isinstance(job, RecordedJob):
        return (job.seed,)
    if isinstance(job, TrainingJob):
        return (job.recipe.seed,)
    if isinstance(job.features, ModelFeatures):
        return tuple(dict.fromkeys(recipe.seed for recipe in job.features.recipes()))
    return ()


def first_layers(recipe: Recipe, count: int) -> Recipe:
    """The recipe that ends with layer `count`."""
    return replace(
        recipe,
        model=replace(recipe.model, layers=recipe.model.layers[:count]),
        learning=recipe.learning[:count],
        plan=tuple(phase for phase in recipe.plan if phase.layer <= count),
        descriptor=replace(
            recipe.descriptor, layers=tuple(k for k in recipe.descriptor.layers if k <= count)
        ),
    )


def fingerprint(job: TrainingJob) -> str:
    """A short hash of everything that determines a training, for its folder in the cache."""
    content: Mapping[str, Any] = {"checksums": job.data.checksums(), **asdict(job)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
