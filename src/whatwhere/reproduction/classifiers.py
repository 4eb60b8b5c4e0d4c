"""The SVM of a job: linear, with virtual samples, or with a Gaussian kernel; C is chosen before the one test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification import Matrix, protocol
from whatwhere.classification.few_label_svm import choose_and_fit
from whatwhere.classification.kernel_svm import kernel_rows, targets_of
from whatwhere.classification.virtual_samples import moved, moves
from whatwhere.classification.whitening import fit_whitening
from whatwhere.classification.working_set import SupportVectors, decision, fit_support_vectors
from whatwhere.data import Images
from whatwhere.data.splits import few_labels
from whatwhere.reproduction.jobs import EvaluationJob, FewLabelJob
from whatwhere.reproduction.results import CTrial

SOLVER = "newton"  # the same on every machine, and several times as fast as LIBLINEAR on rows as wide as these
DUAL = "newton, by support vectors"
DRAWS = 10  # of a few labels
Describe = Callable[[Callable[[Images], Images]], Matrix]
Choice = tuple[protocol.Score, tuple[CTrial, ...]]


@dataclass(frozen=True)
class LabelledRows:
    """Training images and evaluation images as rows, with their labels.

    blocks              how many columns each model and layer has; empty: one block
    image_milliseconds  how long it took to describe an image
    """

    x: Matrix
    y: np.ndarray
    x_test: Matrix
    y_test: np.ndarray
    blocks: tuple[int, ...] = ()
    image_milliseconds: float = 0.0


def evaluate_job(rows: LabelledRows, job: EvaluationJob, device: torch.device, describe: Describe) -> dict[str, Any]:
    """Score, trials and number of virtual samples of a job, as `EvaluationResult` takes them.

    describe  gives the rows of images that are made from the training images
    """
    if share := job.classifier.whiten:
        whitening = fit_whitening(rows.x, share, rows.blocks, device=device)  # of all training images: no label is used
        whitened = replace(rows, x=whitening(rows.x), x_test=whitening(rows.x_test))
        plain = replace(job, classifier=replace(job.classifier, whiten=0.0))
        return evaluate_job(whitened, plain, device, lambda wanted: whitening(describe(wanted)))
    if not job.classifier.dual:
        score, trials = evaluate_linear(rows, job, device)
        return {"score": score, "trials": trials}
    return DualEvaluation(rows, job, device).run(describe)


def evaluate_linear(rows: LabelledRows, job: EvaluationJob, device: torch.device) -> Choice:
    """The score of a linear SVM with all labels, and the trials of C.

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


class DualEvaluation:
    """An SVM by its support vectors, linear or with a Gaussian kernel."""

    def __init__(self, rows: LabelledRows, job: EvaluationJob, device: torch.device) -> None:
        self.rows, self.job = rows, job
        self.x, self.x_test = (dense(part, device) for part in (rows.x, rows.x_test))
        self.classes = np.unique(rows.y)
        self.t = targets_of(rows.y, self.classes, device)

    def run(self, describe: Describe) -> dict[str, Any]:
        """Choose C, and the width of a Gaussian kernel; fit all training images; move support vectors; test."""
        pairs = [pair for width in self.job.classifier.widths or (None,) for pair in self.trials(width)]
        best, start = min(pairs, key=lambda pair: pair[0].error)
        found = fit_support_vectors(self.x, self.t, best.C, best.width, start)
        x, virtual = self.x[found.rows], 0
        if steps := moves(self.job.classifier.virtual_shift, self.job.classifier.virtual_turn):
            numbers = found.rows.cpu().numpy()
            labels = self.rows.y[numbers]

            def wanted(training: Images) -> Images:
                pixels = torch.cat([moved(training[numbers], move) for move in steps])
                return Images(pixels.numpy(), np.tile(labels, len(steps)), f"{training.name}, moved")

            x, virtual = torch.cat([x, dense(describe(wanted), x.device)]), len(steps) * len(labels)
            t = targets_of(np.tile(labels, 1 + len(steps)), self.classes, x.device)
            unmoved = SupportVectors(torch.arange(len(labels), device=x.device), found.a)
            found = fit_support_vectors(x, t, best.C, best.width, unmoved)
            x = x[found.rows]
        f = decision(self.x_test, x, found.a, best.width)
        predicted = self.classes[f.argmax(1).cpu().numpy()]
        score = protocol.score_predictions(predicted, self.rows.y_test, self.classes, C=best.C, solver=DUAL)
        return {"score": score, "trials": tuple(trial for trial, _ in pairs), "virtual_samples": virtual}

    def trials(self, width: float | None) -> list[tuple[CTrial, SupportVectors]]:
        """The validation error of every C: on the last sixth of the training images, or on the evaluation images."""
        y, held = self.rows.y, len(self.rows.y) * 5 // 6
        if self.job.data.eval_split == "validation":
            training, evaluated, truth = self.x, self.x_test, self.rows.y_test
        else:
            training, evaluated, truth = self.x[:held], self.x[held:], y[held:]
        pairs: list[tuple[CTrial, SupportVectors]] = []
        for C in sorted(self.job.C, reverse=True):  # the largest has the fewest support vectors
            found = fit_support_vectors(training, self.t[: len(training)], C, width, pairs[-1][1] if pairs else None)
            f = decision(evaluated, training[found.rows], found.a, width)
            predicted = self.classes[f.argmax(1).cpu().numpy()]
            pairs.append((CTrial(C=C, width=width, error=float((predicted != truth).mean())), found))
        return pairs[::-1]


def evaluate_few_labels(rows: LabelledRows, job: FewLabelJob, device: torch.device) -> protocol.FewLabels:
    """The errors over ten draws of a few labels, C chosen by cross-validation within the drawn labels."""
    if not job.dual:
        return protocol.evaluate_few_labels(
            rows.x, rows.y, rows.x_test, rows.y_test, job.labels, draws=DRAWS, grid=job.C, solver=SOLVER, device=device
        )
    x, x_test = (dense(part, device) for part in (rows.x, rows.x_test))
    errors, Cs = [], []
    for seed in range(DRAWS):
        drawn = few_labels(rows.y, job.labels, seed)
        y, some = rows.y[drawn], x[torch.from_numpy(drawn).to(device)]
        C, a, classes = choose_and_fit(kernel_rows(some, some), y, protocol.folds(y), job.C)
        predicted = classes[(kernel_rows(x_test, some).double() @ a).argmax(1).cpu().numpy()]
        errors.append(float((predicted != rows.y_test).mean()))
        Cs.append(C)
    interval = protocol.t_interval(errors)
    return protocol.FewLabels(job.labels, tuple(errors), tuple(Cs), float(np.mean(errors)), interval)


def dense(x: Matrix, device: torch.device) -> Tensor:
    """Rows as a dense tensor."""
    if isinstance(x, Tensor):
        return x.to(device)
    return torch.from_numpy(x if isinstance(x, np.ndarray) else x.toarray()).to(device)
