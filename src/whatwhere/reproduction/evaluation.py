"""Evaluating one job: describe the images, choose C on validation images, fit all, use the test images once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from whatwhere.classification import Matrix, describe_images, protocol, side_by_side
from whatwhere.data import Images
from whatwhere.distributed import choose_device
from whatwhere.errors import ImageError
from whatwhere.model import DeconvNet
from whatwhere.reproduction.baselines import Baseline
from whatwhere.reproduction.jobs import DataSpec, EvaluationJob, FewLabelJob, Job, ModelFeatures, TrainingJob
from whatwhere.reproduction.models import ModelStore
from whatwhere.reproduction.records import Record, ResultStore
from whatwhere.reproduction.results import CTrial, EvaluationResult, FewLabelResult
from whatwhere.spec import Recipe

SOLVER = "newton"  # the same on every machine, and several times as fast as LIBLINEAR on rows as wide as these


@dataclass(frozen=True)
class LabelledRows:
    """Training images and evaluation images as rows, with their labels."""

    x: Matrix
    y: np.ndarray
    x_test: Matrix
    y_test: np.ndarray


@dataclass
class Evaluator:
    """Runs jobs. The images and rows that were used last stay in memory: jobs that share them are run in sequence."""

    results: ResultStore
    models: ModelStore
    log: Callable[[str], None] = print
    _images: dict[DataSpec, tuple[Images, Images]] = field(default_factory=dict)
    _rows: dict[tuple[DataSpec, ModelFeatures | Baseline], LabelledRows] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return choose_device(self.models.device)

    def run(self, job: Job, *, publish: bool = False) -> Record[Any]:
        """The record of a job, measured now unless there is one; `publish` puts its model with the results."""
        if (record := self.results.find(job)) is not None:
            return record
        if isinstance(job, TrainingJob):
            self.models.get(job, self.images(job.data)[0], publish=publish)
            record = self.results.find(job)
            assert record is not None, "get() records every training"
            return record
        rows = self.labelled_rows(job, publish)
        began = time.monotonic()
        about: dict[str, Any] = {
            "dimensions": rows.x.shape[1],
            "density": round(density(rows.x_test), 4),
            "models": self.model_names(job),
        }
        if isinstance(job, FewLabelJob):
            few = evaluate_few_labels(rows, job, self.device)
            return self.results.put(job, FewLabelResult(draws=few, **about), time.monotonic() - began)
        score, trials = evaluate_all_labels(rows, job, self.device)
        return self.results.put(job, EvaluationResult(score=score, trials=trials, **about), time.monotonic() - began)

    def images(self, data: DataSpec) -> tuple[Images, Images]:
        if data not in self._images:
            self._images = {data: data.load()}
        return self._images[data]

    def model_names(self, job: EvaluationJob | FewLabelJob) -> tuple[str, ...]:
        """The records of the trainings whose models describe the images."""
        if not isinstance(job.features, ModelFeatures):
            return ()
        return tuple(self.results.name_of(TrainingJob(job.data, recipe)) for recipe in job.features.recipes())

    def labelled_rows(self, job: EvaluationJob | FewLabelJob, publish: bool = False) -> LabelledRows:
        """The images of a job as rows."""
        source = (job.data, job.features)
        if source not in self._rows:
            self._rows = {}  # before the next ones are made: two at a time may not fit in memory
            training, test = self.images(job.data)
            if training.labels is None or test.labels is None:
                raise ImageError(f"{job.data.name} has no labels; a classifier needs one for each image")
            began = time.monotonic()
            x, x_test = self._describe(job, training, test, publish)
            self._rows = {source: LabelledRows(x, training.labels, x_test, test.labels)}
            self.log(f"  {len(training) + len(test):,} images described in {time.monotonic() - began:.1f} s")
        return self._rows[source]

    def _describe(
        self, job: EvaluationJob | FewLabelJob, training: Images, test: Images, publish: bool
    ) -> tuple[Matrix, Matrix]:
        if isinstance(job.features, Baseline):
            dense = job.features.describe(training, test)
            first, second = (torch.from_numpy(rows).to(self.device) for rows in dense)
            return first, second  # dense rows: as tensors, which Newton's method fits several times as fast
        parts = []
        for recipe in job.features.recipes():
            model = self.models.get(TrainingJob(job.data, recipe), training, publish=publish).to(self.device)
            parts.append([self._model_rows(model, images, recipe) for images in (training, test)])
        first, second = (side_by_side(list(rows)) for rows in zip(*parts, strict=True))
        return first, second

    def _model_rows(self, model: DeconvNet, images: Images, recipe: Recipe) -> Matrix:
        # On a GPU the rows stay there: the SVM is fitted there too, and moving them would take most of the time.
        on_device = self.device.type == "cuda"
        return describe_images(model, images, recipe, engine=self.models.engine, on_device=on_device)


def evaluate_all_labels(
    rows: LabelledRows, job: EvaluationJob, device: torch.device
) -> tuple[protocol.Score, tuple[CTrial, ...]]:
    """The score with all labels, and the trials of C.

    A job that evaluates on test images chooses C on the last sixth of the training images first.
    """

    def evaluate(C: float) -> protocol.Score:
        return protocol.evaluate(rows.x, rows.y, rows.x_test, rows.y_test, C, solver=SOLVER, device=device)

    if job.data.eval_split == "validation":
        scores = [evaluate(C) for C in job.C]
        best = min(scores, key=lambda score: score.error)
        return best, tuple(CTrial(C=score.C, error=score.error) for score in scores)
    fold = np.where(np.arange(len(rows.y)) < len(rows.y) * 5 // 6, 1, 0)
    chosen, trials = protocol.choose({"": rows.x}, rows.y, grid=job.C, fold=fold, solver=SOLVER, device=device)
    return evaluate(chosen.C), tuple(CTrial(C=trial.C, error=trial.error) for trial in trials)


def evaluate_few_labels(rows: LabelledRows, job: FewLabelJob, device: torch.device) -> protocol.FewLabels:
    """The errors over ten draws of a few labels."""
    return protocol.evaluate_few_labels(
        rows.x, rows.y, rows.x_test, rows.y_test, job.labels, grid=job.C, solver=SOLVER, device=device
    )


def density(x: Matrix) -> float:
    """The share of numbers that are not 0."""
    nonzeros = x.nnz if hasattr(x, "nnz") else (x != 0).sum()
    return float(nonzeros / (x.shape[0] * x.shape[1]))
