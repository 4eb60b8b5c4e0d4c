"""The SVM of a job: linear, with virtual samples, or with a Gaussian kernel; C is chosen before the one test."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from whatwhere.classification import Matrix, fit_kernel_svm, fit_svm, protocol
from whatwhere.classification.matrix import stacked
from whatwhere.classification.virtual_samples import moved, moves, support_rows
from whatwhere.data import Images
from whatwhere.reproduction.jobs import EvaluationJob
from whatwhere.reproduction.results import CTrial

SOLVER = "newton"  # the same on every machine, and several times as fast as LIBLINEAR on rows as wide as these
Describe = Callable[[Callable[[Images], Images]], Matrix]


class Rows(Protocol):
    """Training and evaluation images as rows, with their labels."""

    @property
    def x(self) -> Matrix: ...
    @property
    def y(self) -> np.ndarray: ...
    @property
    def x_test(self) -> Matrix: ...
    @property
    def y_test(self) -> np.ndarray: ...


def evaluate_job(rows: Rows, job: EvaluationJob, device: torch.device, describe: Describe) -> dict[str, Any]:
    """Score, trials and number of virtual samples of a job, as `EvaluationResult` takes them.

    describe  gives the rows of images that are made from the training images
    """
    evaluate = evaluate_gaussian if job.classifier.widths else evaluate_linear
    score, trials = evaluate(rows, job, device)
    if not (steps := moves(job.classifier.virtual_shift, job.classifier.virtual_turn)):
        return {"score": score, "trials": trials}
    svm = fit_svm(rows.x, rows.y, score.C, solver=SOLVER, device=device)
    support = support_rows(svm, rows.x, rows.y)

    def virtual(training: Images) -> Images:
        pixels = torch.cat([moved(training[support], move) for move in steps])
        return Images(pixels.numpy(), np.tile(rows.y[support], len(steps)), f"{training.name}, moved")

    x = stacked([rows.x, describe(virtual)])
    y = np.concatenate([rows.y, np.tile(rows.y[support], len(steps))])
    score = protocol.evaluate(x, y, rows.x_test, rows.y_test, score.C, solver=SOLVER, device=device)
    return {"score": score, "trials": trials, "virtual_samples": len(steps) * len(support)}


def evaluate_linear(rows: Rows, job: EvaluationJob, device: torch.device) -> tuple[protocol.Score, tuple[CTrial, ...]]:
    """The score of a linear SVM with all labels, and the trials of C.

    A job that evaluates on test images chooses C on the last sixth of the training images first.
    """

    def evaluate(C: float) -> protocol.Score:
        return protocol.evaluate(rows.x, rows.y, rows.x_test, rows.y_test, C, solver=SOLVER, device=device)

    if job.data.eval_split == "validation":
        scores = [evaluate(C) for C in job.C]
        best = min(scores, key=lambda score: score.error)
        return best, tuple(CTrial(C=score.C, error=score.error) for score in scores)
    if len(job.C) == 1:  # chosen before
        return evaluate(job.C[0]), ()
    chosen, trials = protocol.choose(
        {"": rows.x}, rows.y, grid=job.C, fold=last_sixth(rows.y), solver=SOLVER, device=device
    )
    return evaluate(chosen.C), tuple(CTrial(C=trial.C, error=trial.error) for trial in trials)


def evaluate_gaussian(
    rows: Rows, job: EvaluationJob, device: torch.device
) -> tuple[protocol.Score, tuple[CTrial, ...]]:
    """The same with a Gaussian kernel, whose width is chosen together with C."""
    x, x_test = (dense(part, device) for part in (rows.x, rows.x_test))

    def evaluate(train: Any, C: float, width: float, x_eval: torch.Tensor, y_eval: np.ndarray) -> protocol.Score:
        svm = fit_kernel_svm(x[train], rows.y[train], C, width)
        return protocol.score_predictions(svm.predict(x_eval), y_eval, svm.classes, C, "newton, gaussian kernel")

    pairs = list(itertools.product(job.C, job.classifier.widths))
    everything = slice(None)
    if job.data.eval_split == "validation":
        scores = [evaluate(everything, C, width, x_test, rows.y_test) for C, width in pairs]
    elif len(pairs) == 1:  # chosen before
        return evaluate(everything, *pairs[0], x_test, rows.y_test), ()
    else:
        held = last_sixth(rows.y) == 0
        training, validation = np.flatnonzero(~held), np.flatnonzero(held)
        scores = [evaluate(training, C, width, x[validation], rows.y[validation]) for C, width in pairs]
    trials = tuple(CTrial(C=C, width=w, error=s.error) for (C, w), s in zip(pairs, scores, strict=True))
    best = min(range(len(pairs)), key=lambda i: scores[i].error)
    if job.data.eval_split == "validation":
        return scores[best], trials
    return evaluate(everything, *pairs[best], x_test, rows.y_test), trials


def last_sixth(y: np.ndarray) -> np.ndarray:
    """The fold of every image: 0 for the last sixth, the validation images, 1 for the others."""
    return np.where(np.arange(len(y)) < len(y) * 5 // 6, 1, 0)


def dense(x: Matrix, device: torch.device) -> torch.Tensor:
    """Rows as a dense tensor."""
    if isinstance(x, torch.Tensor):
        return x.to(device)
    return torch.from_numpy(x if isinstance(x, np.ndarray) else x.toarray()).to(device)
