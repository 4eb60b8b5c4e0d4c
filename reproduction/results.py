"""What a job comes to: typed results, and the numbers that tables take from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reproduction.few_labels import FewLabels
from whatwhere.classification import protocol

Measure = Literal[
    "error",
    "cost",
    "reconstruction",
    "penalty",
    "nonzeros",
    "dead_maps",
    "dimensions",
    "training_seconds",
    "image_milliseconds",
    "cost_before",
    "cost_after",
]
TRAINING_MEASURES = ("cost", "reconstruction", "penalty", "nonzeros", "dead_maps")


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch of a training; costs and non-zeros are per image.

    What is None was not recorded: a few histories were recovered from the printed lines of their
    training.
    """

    layer: int
    epoch: int
    cost: float
    nonzeros: float
    seconds: float
    engine: str
    reconstruction: float | None = None
    penalty: float | None = None
    dead_maps: int | None = None
    images: int | None = None
    steps: int | None = None
    filter_seconds: float | None = None
    image_iterations_per_second: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The history of a training, all its layers; `training_seconds` are those of its top layer."""

    history: tuple[EpochRecord, ...]
    training_seconds: float
    note: str = ""

    def series(self, measure: Measure) -> list[float]:
        """A measure at every epoch of the top layer."""
        top = self.history[-1].layer
        values = [getattr(epoch, measure) for epoch in self.history if epoch.layer == top]
        if any(value is None for value in values):
            raise ValueError(f"this training has no record of its {measure}")
        return [float(value) for value in values]


@dataclass(frozen=True, kw_only=True)
class CTrial:
    """The validation error with one C, and of a Gaussian kernel with one width."""

    C: float
    error: float
    width: float | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """The error rate with all labels.

    trials      the C values that were tried on validation images
    dimensions  of a descriptor
    density     the share of its numbers that are not 0
    models      names of the trainings whose features were classified; none for a baseline
    training_seconds    of all these models
    image_milliseconds  to describe one image, all models; of a baseline, with what it learns first
    virtual_samples     that the SVM learned from, in addition to the training images
    """

    score: protocol.Score
    trials: tuple[CTrial, ...]
    dimensions: int
    density: float
    models: tuple[str, ...] = ()
    training_seconds: float | None = None
    image_milliseconds: float | None = None
    virtual_samples: int = 0

    @property
    def error(self) -> float:
        return self.score.error


@dataclass(frozen=True, kw_only=True)
class FewLabelResult:
    """Error rates of several draws of a few labels; the other fields are those of
    `EvaluationResult`."""

    draws: FewLabels
    dimensions: int
    density: float
    models: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        return self.draws.mean


@dataclass(frozen=True, kw_only=True)
class RecordedResult:
    """What is known of a measurement whose program is gone: fine-tuning with labels.

    cost_before, cost_after  mean cost of a test image after as many steps, before and after
                             fine-tuning
    """

    score: protocol.Score
    cost_before: float
    cost_after: float

    @property
    def error(self) -> float:
        return self.score.error


Result = TrainingResult | EvaluationResult | FewLabelResult | RecordedResult


def value_of(result: Result, measure: Measure) -> float:
    """The number that a table shows: an error rate, a cost of features, or a measure at the end of
    a training.

    nan where a result does not have it: a baseline is not trained.
    """
    if isinstance(result, TrainingResult):
        return result.series(measure)[-1]
    value = result.error if measure == "error" else getattr(result, measure)
    return math.nan if value is None else float(value)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation; a single value has no deviation."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
