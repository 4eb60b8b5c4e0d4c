"""Evaluating one job: describe the images, choose C on validation images, fit all, use the test
images once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduction import baselines
from reproduction.baselines import Baseline, choose_device
from reproduction.classifiers import LabelledRows, MakeImages, evaluate_few_labels, evaluate_job
from reproduction.jobs import (
    DataSpec,
    EvaluationJob,
    FewLabelJob,
    Job,
    ModelFeatures,
    RecordedJob,
    TrainingJob,
)
from reproduction.models import ModelStore
from reproduction.records import Record, ResultStore
from reproduction.results import EvaluationResult, FewLabelResult
from reproduction.whitening import layer_columns, side_by_side
from whatwhere.classification import Matrix, describe_images
from whatwhere.data import Images
from whatwhere.errors import ImageError, RunError
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe


@dataclass
class Evaluator:
    """Runs jobs. The images and rows that were used last stay in memory: jobs that share them are
    run in sequence."""

    results: ResultStore
    models: ModelStore
    log: Callable[[str], None] = print
    _images: dict[DataSpec, tuple[Images, Images]] = field(default_factory=dict)
    _rows: dict[tuple[DataSpec, ModelFeatures | Baseline], LabelledRows] = field(
        default_factory=dict
    )
    _fitted: dict[tuple[DataSpec, Baseline], baselines.Describe] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return choose_device(self.models.device)

    def run(self, job: Job, *, publish: bool = False) -> Record[Any]:
        """The record of a job, measured now unless there is one; `publish` puts its model with the
        results."""
        if (record := self.results.find(job)) is not None:
            return record
        if isinstance(job, TrainingJob):
            self.models.get(job, self.images(job.data)[0], publish=publish)
            record = self.results.find(job)
            assert record is not None, "get() records every training"
            return record
        if isinstance(job, RecordedJob):
            raise RunError(
                f"{job.method} cannot be measured: the project no longer has the program for it"
            )
        rows = self.labelled_rows(job, publish)
        began = time.monotonic()
        about: dict[str, Any] = {
            "dimensions": rows.x.shape[1],
            "density": round(density(rows.x_test), 4),
            "models": self.model_names(job),
        }
        if isinstance(job, FewLabelJob):
            few = evaluate_few_labels(rows, job, self.device)
            return self.results.put(
                job, FewLabelResult(draws=few, **about), time.monotonic() - began
            )
        outcome = evaluate_job(
            rows, job, self.device, lambda wanted: self._describe_moved(job, wanted)
        )
        about |= {
            "training_seconds": self.training_seconds(job),
            "image_milliseconds": rows.image_milliseconds,
        }
        return self.results.put(job, EvaluationResult(**outcome, **about), time.monotonic() - began)

    def images(self, data: DataSpec) -> tuple[Images, Images]:
        """Training and evaluation images; those of the other view stay in memory."""
        if data not in self._images:
            other = replace(data, deskew=not data.deskew)
            self._images = {key: pair for key, pair in self._images.items() if key == other}
            self._images[data] = data.load()
        return self._images[data]

    def trainings(self, job: EvaluationJob | FewLabelJob) -> list[TrainingJob]:
        """The trainings whose models describe the images; none for a baseline."""
        return [each for view in job.data.views() for each, _ in view_models(view, job.features)]

    def model_names(self, job: EvaluationJob | FewLabelJob) -> tuple[str, ...]:
        """The records of these trainings."""
        return tuple(self.results.name_of(training) for training in self.trainings(job))

    def training_seconds(self, job: EvaluationJob) -> float | None:
        """How long these trainings took, all layers; None for a baseline."""
        records = [self.results.find(training) for training in self.trainings(job)]
        epochs = [
            epoch.seconds
            for record in records
            if record is not None
            for epoch in record.result.history
        ]
        return round(sum(epochs), 3) if epochs else None

    def labelled_rows(
        self, job: EvaluationJob | FewLabelJob, publish: bool = False
    ) -> LabelledRows:
        """The images of a job as rows, all views side by side."""
        source = (job.data, job.features)
        if source not in self._rows:
            # before the next ones are made: two at a time may not fit in memory
            known, self._rows = (
                self._rows,
                {},
            )
            sources = [(view, job.features) for view in job.data.views()]
            known = {each: known[each] for each in sources if each in known}
            views = [
                known.pop(each) if each in known else self._view_rows(*each, publish)
                for each in sources
            ]
            self._rows = {source: views[0] if len(views) == 1 else joined(views)}
        return self._rows[source]

    def _view_rows(
        self, data: DataSpec, features: ModelFeatures | Baseline, publish: bool
    ) -> LabelledRows:
        training, test = self.images(data)
        if training.labels is None or test.labels is None:
            raise ImageError(f"{data.name} has no labels; a classifier needs one for each image")
        for each, _ in view_models(data, features):
            self.models.get(each, training, publish=publish)  # before the clock starts
        began = time.monotonic()
        x, x_test = self._describe(data, features, training, test)
        seconds, count = time.monotonic() - began, len(training) + len(test)
        self.log(f"  {count:,} images described in {seconds:.1f} s")
        blocks = self._blocks(data, features)
        return LabelledRows(x, training.labels, x_test, test.labels, blocks, 1000 * seconds / count)

    def _describe(
        self, data: DataSpec, features: ModelFeatures | Baseline, training: Images, test: Images
    ) -> tuple[Matrix, Matrix]:
        if isinstance(features, Baseline):
            rows, describe = features.fit(training)
            self._fitted[data, features] = describe  # for moved images, too
            return self._tensor(rows), self._tensor(describe(test))
        parts = [
            [self._model_rows(model, images, recipe) for images in (training, test)]
            for model, recipe in self._models(data, features)
        ]
        first, second = (side_by_side(list(rows)) for rows in zip(*parts, strict=True))
        return first, second

    def _describe_moved(self, job: EvaluationJob, wanted: MakeImages) -> Matrix:
        """Moved images as rows, in every view: what `wanted` makes of the training images and the
        evaluation images."""
        return side_by_side(
            [self._view_moved(view, job.features, wanted) for view in job.data.views()]
        )

    def _view_moved(
        self, data: DataSpec, features: ModelFeatures | Baseline, wanted: MakeImages
    ) -> Matrix:
        moved = wanted(*self.images(data))
        if isinstance(features, Baseline):
            return self._tensor(self._fitted[data, features](moved))
        return side_by_side(
            [
                self._model_rows(model, moved, recipe)
                for model, recipe in self._models(data, features)
            ]
        )

    def _tensor(self, rows: np.ndarray) -> Tensor:
        """Dense rows as a tensor, which Newton's method fits several times as fast."""
        return torch.from_numpy(rows).to(self.device)

    def _models(
        self, data: DataSpec, features: ModelFeatures
    ) -> Iterator[tuple[DeconvNet, Recipe]]:
        """The trained models of a view, one at a time, each with how it is used."""
        training, _ = self.images(data)
        for job, recipe in view_models(data, features):
            yield self.models.get(job, training).to(self.device), recipe

    def _blocks(self, data: DataSpec, features: ModelFeatures | Baseline) -> tuple[int, ...]:
        """How many columns each model and layer has; none for a baseline, whose rows are one
        block."""
        if isinstance(features, Baseline):
            return ()
        size = self.images(data)[0].shape[-2:]
        return tuple(
            width
            for model, recipe in self._models(data, features)
            for width in layer_columns(model, recipe.descriptor, *size)
        )

    def _model_rows(self, model: DeconvNet, images: Images, recipe: Recipe) -> Matrix:
        # On a GPU the rows stay there: the SVM is fitted there too, and moving them would take most
        # of the time.
        on_device = self.device.type == "cuda"
        return describe_images(
            model, images, recipe, engine=self.models.engine, on_device=on_device
        )


def joined(views: Sequence[LabelledRows]) -> LabelledRows:
    """The views of the same images, side by side."""
    return replace(
        views[0],
        x=side_by_side([view.x for view in views]),
        x_test=side_by_side([view.x_test for view in views]),
        blocks=tuple(width for view in views for width in view.blocks or (view.x.shape[1],)),
        image_milliseconds=sum(view.image_milliseconds for view in views),
    )


def view_models(
    data: DataSpec, features: ModelFeatures | Baseline
) -> list[tuple[TrainingJob, Recipe]]:
    """The training of each model for one view of the images, and the recipe by which it is used."""
    recipes = features.recipes() if isinstance(features, ModelFeatures) else []
    return [(TrainingJob(data, recipe), recipe) for recipe in recipes]


def density(x: Matrix) -> float:
    """The share of numbers that are not 0."""
    nonzeros = x.nnz if hasattr(x, "nnz") else (x != 0).sum()
    return float(nonzeros / (x.shape[0] * x.shape[1]))
