"""Measuring one subject: describe the images, choose C on validation images, fit all, touch the test images once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from whatwhere.classification import Matrix, describe_images, protocol, side_by_side
from whatwhere.data import Images
from whatwhere.distributed import choose_device
from whatwhere.errors import RunError
from whatwhere.reproduction.baselines import BASELINES
from whatwhere.reproduction.models import Models
from whatwhere.reproduction.results import Result, Results
from whatwhere.reproduction.subjects import DataSpec, Subject, model_subject
from whatwhere.spec import Recipe

SOLVER = "newton"  # the same on every machine, and several times as fast as LIBLINEAR on rows as wide as these


@dataclass(frozen=True)
class Described:
    """Training images and those to be judged by, as rows, with their labels."""

    x: Matrix
    y: np.ndarray
    x_test: Matrix
    y_test: np.ndarray


@dataclass
class Laboratory:
    """What measuring needs. The images and rows used last are held: cells that share them stand side by side."""

    results: Results
    models: Models
    say: Callable[[str], None] = print
    _images: dict[DataSpec, tuple[Images, Images]] = field(default_factory=dict)
    _described: dict[str, Described] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return choose_device(self.models.device)

    def images(self, data: DataSpec) -> tuple[Images, Images]:
        if data not in self._images:
            self._images = {data: data.load()}
        return self._images[data]

    def measure(self, subject: Subject, *, keep: bool = False) -> Result:
        """The result of a subject, measured now unless it is known; `keep` keeps its model with the results."""
        if self.results.find(subject) is None:
            self._measure(subject, keep)
        found = self.results.find(subject)
        assert found is not None
        return found

    def _measure(self, subject: Subject, keep: bool) -> None:
        if subject.kind == "model":
            self.models.get(subject, self.images(subject.data)[0], keep=keep)
            return
        described = self.described(subject, keep)
        began = time.monotonic()
        evaluate = few_labels if subject.kind == "few labels" else all_labels
        found = evaluate(described, subject, self.device)
        about = {"dimensions": described.x.shape[1], "density": round(density(described.x_test), 4)}
        if "recipe" in subject.settings:
            models = [model_subject(recipe, subject.data).key for recipe in recipes_of(subject)]
            about |= {"model": models[0]} if len(models) == 1 else {"models": models}
        self.results.put(subject, {**found, **about}, time.monotonic() - began)

    def described(self, subject: Subject, keep: bool) -> Described:
        """The images of a subject as rows."""
        source = replace(subject, kind="error", settings=without(subject.settings, "C", "labels")).key
        if source not in self._described:
            self._described = {}  # before the next ones are made: two at a time may not fit
            training, test = self.images(subject.data)
            began = time.monotonic()
            rows = self._rows(subject, training, test, keep)
            assert training.labels is not None
            assert test.labels is not None
            self._described = {source: Described(rows[0], training.labels, rows[1], test.labels)}
            self.say(f"  {len(training) + len(test):,} images described in {time.monotonic() - began:.1f} s")
        return self._described[source]

    def _rows(self, subject: Subject, training: Images, test: Images, keep: bool) -> tuple[Matrix, Matrix]:
        if "baseline" in subject.settings:
            describe = BASELINES[subject.settings["baseline"]["name"]].describe
            if describe is None:
                raise RunError("scattering is measured by benchmarks/scattering.py, in an environment of its own")
            first, second = (torch.from_numpy(rows).to(self.device) for rows in describe(training, test))
            return first, second  # dense rows: as tensors, which Newton's method fits several times as fast
        # On a GPU the rows stay there: the SVM is fitted there too, and moving them would take most of the time.
        options: dict[str, Any] = {"engine": self.models.engine, "on_device": self.device.type == "cuda"}
        parts = []
        for recipe in recipes_of(subject):
            model = self.models.get(model_subject(recipe, subject.data), training, keep=keep).to(self.device)
            parts.append([describe_images(model, images, recipe, **options) for images in (training, test)])
        first, second = (side_by_side(list(rows)) for rows in zip(*parts, strict=True))
        return first, second


def recipes_of(subject: Subject) -> list[Recipe]:
    """Those of the models whose descriptors a subject sets side by side; of most, one."""
    first = subject.recipe
    return [replace(first, seed=first.seed + i) for i in range(subject.settings.get("ensemble_size", 1))]


def all_labels(described: Described, subject: Subject, device: torch.device) -> dict[str, Any]:
    """The error with all labels. Judged by test images, C is chosen by the last sixth of the training images first."""
    d, grid = described, subject.settings["C"]

    def evaluate(C: float) -> protocol.Score:
        return protocol.evaluate(d.x, d.y, d.x_test, d.y_test, C, solver=SOLVER, device=device)

    if subject.data.eval_split == "validation":
        scores = [evaluate(C) for C in grid]
        best = min(scores, key=lambda score: score.error)
        return {**asdict(best), "trials": [{"C": score.C, "error": score.error} for score in scores]}
    last = np.where(np.arange(len(d.y)) < len(d.y) * 5 // 6, 1, 0)
    chosen, trials = protocol.choose({"": d.x}, d.y, grid=grid, fold=last, solver=SOLVER, device=device)
    score = evaluate(chosen.C)
    return {**asdict(score), "trials": [{"C": trial.C, "error": trial.error} for trial in trials]}


def few_labels(described: Described, subject: Subject, device: torch.device) -> dict[str, Any]:
    """The mean error over ten draws of a few labels."""
    d, settings = described, subject.settings
    few = protocol.evaluate_few_labels(
        d.x, d.y, d.x_test, d.y_test, settings["labels"], grid=settings["C"], solver=SOLVER, device=device
    )
    return {"error": few.mean, "errors_of_draws": few.errors, **without(asdict(few), "mean", "errors")}


def density(x: Matrix) -> float:
    """The share of numbers that are not 0."""
    nonzeros = x.nnz if hasattr(x, "nnz") else (x != 0).sum()
    return float(nonzeros / (x.shape[0] * x.shape[1]))


def without(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}
