"""How error rates are measured: validation images choose C, then one test after fitting all
training images.

chosen, trials = choose(X, y)      # C, by validation images
score = evaluate(X, y, X_test, y_test, chosen.C, start=chosen.svm)      # all training images
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from whatwhere.classification.descriptors import Matrix
from whatwhere.classification.linear_svm import LinearSVM, check_labels, fit_svm
from whatwhere.errors import ImageError, plural

C_GRID = (0.3, 3.0, 30.0)
FOLDS = 6  # one of them is for validation: a sixth, as the paper's 10,000 of 60,000


@dataclass(frozen=True)
class Trial:
    """The validation error of one C, and the SVM that was fitted last with it, for `evaluate` to
    start from."""

    C: float
    error: float
    svm: LinearSVM | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Score:
    """Errors on test images: their rate, its 95 % interval, and the confusion matrix [true class,
    predicted class].

    C is 0 if the classifier is not an SVM.
    """

    error: float
    interval: tuple[float, float]
    errors: int
    images: int
    classes: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]
    C: float
    solver: str


def folds(labels: np.ndarray, count: int = FOLDS, seed: int = 0) -> np.ndarray:
    """Return the fold of every image, [N]: each class is spread evenly over the folds, in random
    order."""
    fold = np.empty(len(labels), np.int64)
    generator = np.random.default_rng(seed)
    start = 0
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        fold[rows] = (start + np.arange(len(rows))) % count
        start += len(rows)  # the next class continues here, so that the folds have the same size
    return fold


def choose(
    x: Matrix,
    y: np.ndarray,
    *,
    grid: Sequence[float] = C_GRID,
    validation: Sequence[np.ndarray] = (),
    device: torch.device | str = "cpu",
    progress: Callable[[int], object] = lambda trials: None,
) -> tuple[Trial, tuple[Trial, ...]]:
    """Return the best C on validation images, the smallest if errors are equal, and all trials.

    Parameters
    ----------
    x
        descriptors of the training images, [N, D]
    y
        their labels, [N]
    grid
        the values of C to compare
    validation
        the images to hold out in turn: bool [N] each; empty holds out a sixth of each class once
    device
        device of the SVM
    progress
        called after every trial

    Examples
    --------
    >>> y = np.tile([0, 1], 30)
    >>> x = np.random.default_rng(0).normal(y[:, None], 0.3, (60, 4)).astype(np.float32)
    >>> best, trials = choose(x, y, grid=(0.1, 1.0))
    >>> [trial.C for trial in trials]
    [0.1, 1.0]
    """
    check_labels(x, y)
    turns = [held.nonzero()[0] for held in validation] or [np.flatnonzero(folds(y) == 0)]
    trials = []
    svms: list[LinearSVM | None] = [None] * len(turns)  # of the previous C
    for C in sorted(grid):
        errors = 0
        for turn, held in enumerate(turns):
            rest = np.setdiff1d(np.arange(len(y)), held)
            svm = fit_svm(x[rest], y[rest], C, start=svms[turn], device=device)
            errors += int((svm.predict(x[held]) != y[held]).sum())
            svms[turn] = svm
        trials.append(Trial(C, errors / sum(map(len, turns)), svms[-1]))
        progress(1)
    return min(trials, key=lambda trial: trial.error), tuple(trials)


def evaluate(
    x: Matrix,
    y: np.ndarray,
    x_test: Matrix,
    y_test: np.ndarray,
    C: float,
    *,
    start: LinearSVM | None = None,
    device: torch.device | str = "cpu",
) -> Score:
    """Fit all training images with the chosen C and count the errors on the test images.

    Parameters
    ----------
    x, x_test
        descriptors of the training and of the test images, [N, D]
    y, y_test
        their labels, [N]
    C
        C of the SVM
    start
        an SVM to start the fit from, which saves time: the SVM of the chosen trial
    device
        device of the SVM

    Examples
    --------
    >>> y = np.tile([0, 1], 30)
    >>> x = np.random.default_rng(0).normal(y[:, None], 0.1, (60, 4)).astype(np.float32)
    >>> evaluate(x[:40], y[:40], x[40:], y[40:], C=1.0).errors
    0
    """
    if x_test.shape[0] != len(y_test) or len(y_test) == 0:
        raise ImageError(
            f"Got {plural(x_test.shape[0], 'test image')} and {plural(len(y_test), 'label')};"
            " expected one label per image."
        )
    svm = fit_svm(x, y, C, start=start, device=device)
    return score_predictions(svm.predict(x_test), y_test, svm.classes, C=C)


def score_predictions(
    predicted: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[int] | np.ndarray = (),
    *,
    C: float = 0.0,
    solver: str = "newton",
) -> Score:
    """Return the errors of a classifier's predictions [N]; `classes` are those that it knows, C is
    0 if it is not an SVM."""
    if len(predicted) != len(labels):
        raise ImageError(
            f"Got {plural(len(predicted), 'image')} and {plural(len(labels), 'label')}; expected"
            " one label per image."
        )
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


def wilson(errors: float, images: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of an error rate."""
    rate = errors / images
    share = z * z / images
    centre = (rate + share / 2) / (1 + share)
    reach = z / (1 + share) * math.sqrt(rate * (1 - rate) / images + share / images / 4)
    return max(0.0, centre - reach), min(1.0, centre + reach)
