"""How error rates are measured: validation images choose the settings, then one test after fitting all training images.

chosen = choose({"layer 2": X}, y)                        # settings and C, by validation images
score  = evaluate(X, y, X_test, y_test, chosen.C)             # refitted to all training images
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from whatwhere.classification.linear_svm import check_labels, fit_svm, which_solver
from whatwhere.classification.matrix import Matrix
from whatwhere.data.splits import few_labels
from whatwhere.errors import ImageError

C_GRID = (0.3, 3.0, 30.0)
MAX_NONZEROS = 100_000_000  # in all matrices fitted at a time; LIBLINEAR takes about 28 bytes for each
FOLDS = 6  # one of them is for validation: a sixth, as the paper's 10,000 of 60,000


@dataclass(frozen=True)
class Trial:
    """The validation error of one setting and one C."""

    setting: str
    C: float
    error: float


@dataclass(frozen=True)
class Score:
    """Errors on test images: their rate, its 95 % interval, and the confusion matrix [true class, predicted class].

    C is 0 where the classifier is no SVM.
    """

    error: float
    interval: tuple[float, float]
    errors: int
    images: int
    classes: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]
    C: float
    solver: str


@dataclass(frozen=True)
class FewLabels:
    """Error rates of several draws of a few labels: their mean, and its 95 % interval (Student's t over draws).

    Cs, shares  that were chosen for each draw; `shares` of whitening, empty where no row was whitened
    """

    labels: int
    errors: tuple[float, ...]
    Cs: tuple[float, ...]
    mean: float
    interval: tuple[float, float]
    shares: tuple[float, ...] = ()


def folds(labels: np.ndarray, count: int = FOLDS, seed: int = 0) -> np.ndarray:
    """The fold of every image, [N]: each class is spread evenly over the folds, in random order."""
    fold = np.empty(len(labels), np.int64)
    generator, start = np.random.default_rng(seed), 0
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        fold[rows] = (start + np.arange(len(rows))) % count
        start += len(rows)  # the next class continues here, so that the folds have the same size
    return fold


def choose(
    settings: Mapping[str, Matrix],
    labels: np.ndarray,
    *,
    grid: Sequence[float] = C_GRID,
    rounds: int = 1,
    fold: np.ndarray | None = None,
    solver: str = "auto",
    device: torch.device | str = "cpu",
    progress: Callable[[int], Any] = lambda trials: None,
) -> tuple[Trial, tuple[Trial, ...]]:
    """The best setting and C on validation images, and all trials.

    If errors are equal, the first setting and the smallest C win.

    settings  descriptions of the training images to compare: name → matrix [N, D]
    labels    of the training images, [N]
    grid      the values of C to compare
    rounds    how many folds are used as validation images in turn
    fold      the fold of every image, [N]; None spreads each class over six folds
    solver, device  of the SVM (see `fit_svm`)
    progress  called after every trial

    >>> y = np.tile([0, 1], 30)
    >>> x = np.random.default_rng(0).normal(y[:, None], 0.3, (60, 4)).astype(np.float32)
    >>> best, trials = choose({"four numbers": x}, y, grid=(0.1, 1.0))
    >>> best.setting, len(trials)
    ('four numbers', 2)
    """
    for x in settings.values():
        check_labels(x, labels)
    fold = folds(labels) if fold is None else fold

    def run_trial(setting: str, C: float) -> Trial:
        x, errors, validated = settings[setting], 0, 0
        for turn in range(rounds):
            training, validation = np.flatnonzero(fold != turn), np.flatnonzero(fold == turn)
            svm = fit_svm(x[training], labels[training], C, solver=solver, device=device)
            errors += int((svm.predict(x[validation]) != labels[validation]).sum())
            validated += len(validation)
        progress(1)
        return Trial(setting, C, errors / validated)

    with ThreadPoolExecutor(parallel_fits(settings.values(), solver, device)) as pool:
        pairs = [(setting, C) for setting in settings for C in sorted(grid)]
        trials = tuple(pool.map(run_trial, *zip(*pairs, strict=True)))
    return min(trials, key=lambda trial: trial.error), trials


def parallel_fits(matrices: Collection[Matrix], solver: str, device: torch.device | str) -> int:
    """How many SVMs are fitted at a time: one per thread, unless LIBLINEAR's copies of the matrix need too much memory.

    Newton's method in torch uses all threads, or the GPU, for one fit.
    """
    if any(which_solver(solver, x, device) == "newton" for x in matrices):
        return 1
    return max(1, min(torch.get_num_threads(), MAX_NONZEROS // max(int(x.size) for x in matrices)))


def evaluate(
    x: Matrix,
    y: np.ndarray,
    x_test: Matrix,
    y_test: np.ndarray,
    C: float,
    *,
    solver: str = "auto",
    device: torch.device | str = "cpu",
) -> Score:
    """Fit all training images with the chosen C and count the errors on the test images.

    x, x_test  descriptors of the training and of the test images, [N, D]
    y, y_test  their labels, [N]
    C          of the SVM
    solver, device  of the SVM (see `fit_svm`)

    >>> y = np.tile([0, 1], 30)
    >>> x = np.random.default_rng(0).normal(y[:, None], 0.1, (60, 4)).astype(np.float32)
    >>> evaluate(x[:40], y[:40], x[40:], y[40:], C=1.0).errors
    0
    """
    if x_test.shape[0] != len(y_test) or len(y_test) == 0:
        raise ImageError(f"{x_test.shape[0]:,} test images and {len(y_test):,} labels; expected one label per image")
    svm = fit_svm(x, y, C, solver=solver, device=device)
    return score_predictions(svm.predict(x_test), y_test, svm.classes, C=C, solver=svm.solver)


def score_predictions(
    predicted: np.ndarray, labels: np.ndarray, classes: Sequence[int] | np.ndarray = (), *, C: float = 0.0, solver: str
) -> Score:
    """The errors of a classifier's predictions [N]; `classes` are those that it knows, C is 0 where it is no SVM."""
    if len(predicted) != len(labels):
        raise ImageError(f"{len(predicted):,} images and {len(labels):,} labels; expected one label per image")
    known = np.unique(np.concatenate([np.asarray(classes, int), predicted, labels]))
    confusion = np.zeros((len(known), len(known)), int)
    np.add.at(confusion, (np.searchsorted(known, labels), np.searchsorted(known, predicted)), 1)
    errors = int((predicted != labels).sum())
    return Score(
        error=errors / len(labels),
        interval=wilson(errors, len(labels)),
        errors=errors,
        images=len(labels),
        classes=tuple(int(c) for c in known),
        confusion=tuple(tuple(int(n) for n in row) for row in confusion),
        C=C,
        solver=solver,
    )


def evaluate_few_labels(
    x: Matrix,
    y: np.ndarray,
    x_test: Matrix,
    y_test: np.ndarray,
    count: int,
    *,
    draws: int = 10,
    grid: Sequence[float] = C_GRID,
    solver: str = "auto",
    device: torch.device | str = "cpu",
    progress: Callable[[int], Any] = lambda draws: None,
) -> FewLabels:
    """The same with only `count` labels, equally many of each class, over several random draws.

    C is chosen by cross-validation within the drawn labels: someone who has 100 labels has no others for validation.

    x, x_test  descriptors of the training and of the test images, [N, D]
    y, y_test  their labels, [N]
    count      of labels in all
    draws      how often they are drawn
    grid       the values of C to choose from
    solver, device  of the SVM (see `fit_svm`)
    progress   called after every draw

    >>> y = np.tile([0, 1], 30)
    >>> x = np.random.default_rng(0).normal(y[:, None], 0.1, (60, 4)).astype(np.float32)
    >>> evaluate_few_labels(x[:40], y[:40], x[40:], y[40:], 12, draws=2).labels
    12
    """
    scores = []
    for seed in range(draws):
        rows = few_labels(y, count, seed)
        best, _ = choose({"": x[rows]}, y[rows], grid=grid, rounds=FOLDS, solver=solver, device=device)
        scores.append(evaluate(x[rows], y[rows], x_test, y_test, best.C, solver=solver, device=device))
        progress(1)
    errors = tuple(score.error for score in scores)
    return FewLabels(count, errors, tuple(score.C for score in scores), float(np.mean(errors)), t_interval(errors))


def wilson(errors: float, images: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of an error rate."""
    rate, share = errors / images, z * z / images
    centre = (rate + share / 2) / (1 + share)
    reach = z / (1 + share) * math.sqrt(rate * (1 - rate) / images + share / images / 4)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean by Student's t; infinite for a single value."""
    if len(values) < 2:
        return -math.inf, math.inf
    from scipy.stats import t

    mean = float(np.mean(values))
    reach = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return mean - reach, mean + reach
