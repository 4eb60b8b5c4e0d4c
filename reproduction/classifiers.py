"""The SVM of a job: linear, with virtual samples, or with a Gaussian kernel; C is chosen before
the one test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduction.few_labels import FewLabels, draw_errors, t_interval
from reproduction.jobs import EvaluationJob, FewLabelJob
from reproduction.results import CTrial
from reproduction.svm.few_label_svm import choose_and_fit
from reproduction.svm.kernel_svm import kernel_rows, targets_of
from reproduction.svm.virtual_samples import Move, moved, moves
from reproduction.svm.working_set import SupportVectors, decision, fit_support_vectors
from reproduction.whitening import fit_whitening
from whatwhere.classification import Matrix, protocol
from whatwhere.data import Images, few_labels

DUAL = "newton, by support vectors"
DRAWS = 10  # of a few labels
# made of the training images and the evaluation images
MakeImages = Callable[[Images, Images], Images]
Describe = Callable[[MakeImages], Matrix]
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


def evaluate_job(
    rows: LabelledRows, job: EvaluationJob, device: torch.device, describe: Describe
) -> dict[str, Any]:
    """Score, trials and number of virtual samples of a job, as `EvaluationResult` takes them.

    describe  gives the rows of images that are made from the training images and the evaluation
              images
    """
    if share := job.classifier.whiten:
        # of all training images: no label is used
        whitening = fit_whitening(rows.x, share, rows.blocks, device=device)
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
        return protocol.evaluate(rows.x, rows.y, rows.x_test, rows.y_test, C, device=device)

    if job.data.eval_split == "validation":
        scores = [evaluate(C) for C in job.C]
        best = min(scores, key=lambda score: score.error)
        return best, tuple(CTrial(C=score.C, error=score.error) for score in scores)
    last_sixth = np.arange(len(rows.y)) >= len(rows.y) * 5 // 6
    chosen, trials = protocol.choose(
        rows.x, rows.y, grid=job.C, validation=[last_sixth], device=device
    )
    return evaluate(chosen.C), tuple(CTrial(C=trial.C, error=trial.error) for trial in trials)


class DualEvaluation:
    """An SVM by its support vectors, linear or with a Gaussian kernel."""

    def __init__(self, rows: LabelledRows, job: EvaluationJob, device: torch.device) -> None:
        self.rows, self.job = rows, job
        self.x, self.x_test = (dense(part, device) for part in (rows.x, rows.x_test))
        self.classes = np.unique(rows.y)
        self.t = targets_of(rows.y, self.classes, device)
        self.moves = moves(job.classifier.virtual_shift, job.classifier.virtual_turn)

    def run(self, describe: Describe) -> dict[str, Any]:
        """Choose C, and the width of a Gaussian kernel; fit all training images; move support
        vectors; test."""
        pairs = [
            pair for width in self.job.classifier.widths or (None,) for pair in self.trials(width)
        ]
        best, start = min(pairs, key=lambda pair: pair[0].error)
        found = fit_support_vectors(self.x, self.t, best.C, best.width, start)
        x, virtual = self.x[found.rows], 0
        if self.moves:
            x, found, virtual = self.with_virtual_samples(found, best, describe)
        f = self.scores(x, found, best.width, describe)
        predicted = self.classes[f.argmax(1).cpu().numpy()]
        score = protocol.score_predictions(
            predicted, self.rows.y_test, self.classes, C=best.C, solver=DUAL
        )
        return {
            "score": score,
            "trials": tuple(trial for trial, _ in pairs),
            "virtual_samples": virtual,
        }

    def with_virtual_samples(
        self, found: SupportVectors, best: CTrial, describe: Describe
    ) -> tuple[Tensor, SupportVectors, int]:
        """Fit the support vectors and their moves: the rows of those that have a coefficient,
        these, and the moves."""
        numbers = found.rows.cpu().numpy()
        labels = self.rows.y[numbers]

        def wanted(training: Images, _: Images) -> Images:
            pixels = torch.cat([moved(training[numbers], move) for move in self.moves])
            return Images(
                pixels.numpy(), np.tile(labels, len(self.moves)), f"{training.name}, moved"
            )

        x = torch.cat([self.x[found.rows], dense(describe(wanted), self.x.device)])
        t = targets_of(np.tile(labels, 1 + len(self.moves)), self.classes, x.device)
        unmoved = SupportVectors(torch.arange(len(labels), device=x.device), found.a)
        again = fit_support_vectors(x, t, best.C, best.width, unmoved)
        return x[again.rows], again, len(self.moves) * len(labels)

    def scores(
        self, x: Tensor, found: SupportVectors, width: float | None, describe: Describe
    ) -> Tensor:
        """The decision functions [N, K] of the evaluation images; averaged over each and its moves
        if asked for."""
        f = decision(self.x_test, x, found.a, width)
        if not self.job.classifier.average_views:
            return f
        for move in self.moves:  # one at a time: all together may not fit in memory
            f += decision(dense(describe(moved_test(move)), x.device), x, found.a, width)
        return f / (1 + len(self.moves))

    def trials(self, width: float | None) -> list[tuple[CTrial, SupportVectors]]:
        """The validation error of every C: on the last sixth of the training images, or on the
        evaluation images."""
        y, held = self.rows.y, len(self.rows.y) * 5 // 6
        if self.job.data.eval_split == "validation":
            training, evaluated, truth = self.x, self.x_test, self.rows.y_test
        else:
            training, evaluated, truth = self.x[:held], self.x[held:], y[held:]
        pairs: list[tuple[CTrial, SupportVectors]] = []
        for C in sorted(self.job.C, reverse=True):  # the largest has the fewest support vectors
            found = fit_support_vectors(
                training, self.t[: len(training)], C, width, pairs[-1][1] if pairs else None
            )
            f = decision(evaluated, training[found.rows], found.a, width)
            predicted = self.classes[f.argmax(1).cpu().numpy()]
            pairs.append(
                (CTrial(C=C, width=width, error=float((predicted != truth).mean())), found)
            )
        return pairs[::-1]


def moved_test(move: Move) -> MakeImages:
    """All evaluation images, moved."""
    return lambda _, test: Images(moved(test[:], move).numpy(), test.labels, f"{test.name}, moved")


def evaluate_few_labels(
    rows: LabelledRows, job: FewLabelJob, device: torch.device, draws: int = DRAWS
) -> FewLabels:
    """The errors over several draws of a few labels, C and the whitening chosen by cross-validation
    within these."""
    if not job.dual:
        given = rows.x, rows.y, rows.x_test, rows.y_test
        return draw_errors(given, job.labels, draws=draws, grid=job.C, device=device)
    drawn = [few_labels(rows.y, job.labels, seed) for seed in range(draws)]
    fits: list[list[FewFit]] = [[] for _ in drawn]
    for share in job.whiten_choices:
        whitening = (
            fit_whitening(rows.x, share, rows.blocks, device=device)
            if share
            else partial(dense, device=device)
        )
        x_test = whitening(rows.x_test)
        for numbers, found in zip(drawn, fits, strict=True):
            found.append(
                fit_few_labels(whitening(rows.x[numbers]), rows.y[numbers], x_test, job.C, share)
            )
    best = [min(found, key=lambda fit: fit.wrong) for found in fits]
    errors = tuple(float((fit.predicted != rows.y_test).mean()) for fit in best)
    interval = t_interval(errors)
    Cs, shares = (tuple(getattr(fit, name) for fit in best) for name in ("C", "share"))
    return FewLabels(
        job.labels, errors, Cs, float(np.mean(errors)), interval, shares if any(shares) else ()
    )


@dataclass(frozen=True)
class FewFit:
    """An SVM of a few labels: its share of whitening and C, its errors in cross-validation, and
    its predictions."""

    share: float
    C: float
    wrong: int
    predicted: np.ndarray


def fit_few_labels(
    x: Tensor, y: np.ndarray, x_test: Tensor, grid: tuple[float, ...], share: float
) -> FewFit:
    """Choose C by cross-validation, fit all labels, and predict the classes of the evaluation
    images."""
    chosen = choose_and_fit(kernel_rows(x, x), y, protocol.folds(y), grid)
    f = kernel_rows(x_test, x).double() @ chosen.a
    return FewFit(share, chosen.C, chosen.wrong, chosen.classes[f.argmax(1).cpu().numpy()])


def dense(x: Matrix, device: torch.device) -> Tensor:
    """Rows as a dense tensor."""
    if isinstance(x, Tensor):
        return x.to(device)
    return torch.from_numpy(x if isinstance(x, np.ndarray) else x.toarray()).to(device)
