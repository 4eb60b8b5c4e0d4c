"""Few labels: the errors of a linear SVM over several draws of them, C chosen by cross-validation
within each draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import t

from whatwhere.classification import Matrix
from whatwhere.classification.protocol import FOLDS, choose, evaluate, folds
from whatwhere.data import few_labels


@dataclass(frozen=True)
class FewLabels:
    """Error rates of several draws of a few labels: their mean, and its 95 % interval (Student's t
    over draws).

    Cs, whitening  that were chosen for each draw; `whitening` is empty where no row was whitened
    """

    labels: int
    errors: tuple[float, ...]
    Cs: tuple[float, ...]
    mean: float
    interval: tuple[float, float]
    whitening: tuple[float, ...] = ()


def cross_validation(y: np.ndarray) -> list[np.ndarray]:
    """The images of each fold, bool [N]: every image is held out once."""
    fold = folds(y)
    return [fold == turn for turn in range(FOLDS)]


def draw_errors(
    rows: tuple[Matrix, np.ndarray, Matrix, np.ndarray],
    count: int,
    *,
    draws: int = 10,
    grid: Sequence[float],
    device: torch.device | str = "cpu",
) -> FewLabels:
    """The errors with only `count` labels, equally many of each class, over several random draws.

    C is chosen by cross-validation within the drawn labels: someone who has 100 labels has no
    others for validation.

    rows   descriptors and labels of the training images, then of the test images
    """
    x, y, x_test, y_test = rows
    scores = []
    for seed in range(draws):
        drawn = few_labels(y, count, seed)
        best, _ = choose(
            x[drawn], y[drawn], grid=grid, validation=cross_validation(y[drawn]), device=device
        )
        scores.append(evaluate(x[drawn], y[drawn], x_test, y_test, best.C, device=device))
    errors = tuple(score.error for score in scores)
    return FewLabels(
        count,
        errors,
        tuple(score.C for score in scores),
        float(np.mean(errors)),
        t_interval(errors),
    )


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean by Student's t; infinite for a single value."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean = float(np.mean(values))
    reach = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return mean - reach, mean + reach
