"""Calibrated probabilities from the potentials of classes: they are right as often as they say.

The length of a row's potentials is raised to a power, so that their proportions count more than
their strength; potentials that are weaker than usual, because labels are far, count less. The
softmax of the result, times a sharpness and with an offset for each class, gives the row's
probabilities. Sharpness and offsets make held-out labels most likely: the offset of a class is
above 0 if it has more labels than the potentials suggest. Few labels say little, so the sharpness
stays near the usual one, and the offsets near 0 (benchmarks/labels/any_folder.py). With few labels,
the usual sharpness is the one with which rows are on average as sure as the stability of their
classes lets expect (`stability`); with many, one that was right on many sets.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor

from whatwhere.spec.checks import Checked, Count, Positive

USUAL = 4.5
"""The sharpness that was right on many sets."""

HELD_OUT_TOLERANCE = 1e-3
"""The tolerance of the potentials of held-out labels."""


@dataclass(frozen=True)
class CalibrationSettings(Checked):
    """How scores become probabilities (chosen on many sets; benchmarks/labels/any_folder.py).

    Parameters
    ----------
    trust
        labels that the usual sharpness of many sets counts as
    of_rows
        the same for one that follows from the rows
    offset
        deviation of an offset from 0
    strength
        the power for the length of potentials; 0 would keep only their proportions
    folds
        parts in which labels are held out
    steps
        steps of the fit
    isolated
        share of rows that are as close to their neighbours as rows usually are
    """

    trust: Positive = 0.5
    of_rows: Positive = 5.0
    offset: Positive = 0.5
    strength: Positive = 0.5
    folds: Count = 5
    steps: Count = 50
    isolated: Positive = 0.95


_SETTINGS = CalibrationSettings()


class Fold(NamedTuple):
    """Labels that are held out, and those that remain, by their positions among all labels."""

    held_out: Tensor
    kept: Tensor


def folds(labels: Tensor, how: CalibrationSettings = _SETTINGS) -> list[Fold]:
    """Parts of the labels [m], the classes in turn; the only label of a class is never held out."""
    number = torch.full_like(labels, -1)
    for label in labels.unique().tolist():
        members = torch.nonzero(labels == label)[:, 0]
        if len(members) > 1:
            place = torch.arange(len(members), device=labels.device)
            number[members] = (place + label) % how.folds
    parts = [torch.nonzero(number == fold)[:, 0] for fold in range(how.folds)]
    positions = torch.arange(len(labels), device=labels.device)
    return [Fold(part, positions[~torch.isin(positions, part)]) for part in parts if len(part)]


def scaled(u: Tensor, usual_length: Tensor, how: CalibrationSettings = _SETTINGS) -> Tensor:
    """Potentials [N, K] with their length raised to a power; usual potentials get the length 1."""
    centred = u - u.mean(1, keepdim=True)
    length = (centred.norm(dim=1, keepdim=True) / usual_length).clamp(min=1e-300)
    return centred / usual_length * length ** (how.strength - 1)


def usual_length(u: Tensor) -> Tensor:
    """Return the median length of the potentials [N, K] of rows that labels reach."""
    lengths = (u - u.mean(1, keepdim=True)).norm(dim=1)
    reached = lengths[lengths > 0]
    return reached.median() if len(reached) else lengths.new_ones(())


class Calibration(NamedTuple):
    """How scores, which are scaled potentials, become probabilities.

    Parameters
    ----------
    sharpness
        factor of the scores
    offsets
        terms that are then added to the scores of the classes, [K]
    """

    sharpness: float
    offsets: Tensor

    def probabilities(self, scores: Tensor) -> Tensor:
        """Probabilities [N, K] from scores [N, K]."""
        return (self.sharpness * scores + self.offsets).softmax(1)


def usual_sharpness(scores: Tensor, accuracy: float) -> float:
    """Return the sharpness with which the mean probability of the classes of rows is an accuracy,
    by bisection; within wide limits.

    Parameters
    ----------
    scores
        scaled potentials of rows, [n, K]
    """
    low, high = 0.3, 30.0  # a fifteenth to seven times the usual one of many labels
    for _ in range(20):
        middle = (low * high) ** 0.5
        if float((middle * scores).softmax(1).max(1).values.mean()) < accuracy:
            low = middle
        else:
            high = middle
    return middle


def calibrate(
    scores: Tensor,
    labels: Tensor,
    usual: float | None = None,
    how: CalibrationSettings = _SETTINGS,
) -> Calibration:
    """Return the calibration with which held-out labels are most likely, near the usual one.

    Parameters
    ----------
    scores
        scaled potentials of the rows that were held out, [n, K]; n may be 0
    labels
        their classes, [n]
    usual
        the usual sharpness, if it is known from these rows; None for the one of many sets, which
        counts less
    """
    scores = scores.detach().double()
    middle = USUAL if usual is None else usual
    trust = how.trust if usual is None else how.of_rows

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        variables = torch.tensor(x, device=scores.device, requires_grad=True)
        change = variables[0]  # of the sharpness, as a logarithm
        offsets = variables[1:]
        logits = middle * change.exp() * scores + offsets
        doubt = trust * change.square() + (offsets / how.offset).square().sum()
        total = F.cross_entropy(logits, labels, reduction="sum") + 0.5 * doubt
        (gradient,) = torch.autograd.grad(total, variables)
        return float(total.detach()), gradient.cpu().numpy()

    # torch.optim would import PyTorch's compiler first, which takes seconds.
    start = np.zeros(1 + scores.shape[1])
    options = {"maxiter": how.steps, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return Calibration(middle * float(np.exp(found[0])), torch.tensor(found[1:]).to(scores))


def mix_isolated(probabilities: Tensor, distances: Tensor, usual: Tensor) -> Tensor:
    """Probabilities [N, K] that approach equal shares for rows that are farther from others than
    usual.

    Parameters
    ----------
    distances
        mean squared distance of every row from its neighbours, [N]
    usual
        the distance up to which nothing changes
    """
    trust = (usual / distances.clamp(min=1e-300)).clamp(max=1).square()[:, None]
    return trust * probabilities + (1 - trust) / probabilities.shape[1]


def usual_distance(distances: Tensor, how: CalibrationSettings = _SETTINGS) -> Tensor:
    """Return the distance that most rows are below, of distances [N]."""
    return torch.quantile(distances.double(), how.isolated)
