"""Scores of classes from labels on one graph of rows: potentials, and a ridge regression."""

from typing import NamedTuple

import torch
from torch import Tensor

from whatwhere.classification import calibration
from whatwhere.classification.ridge import LabelRegression
from whatwhere.classification.row_graph import RowGraph


class LabelScores(NamedTuple):
    """Scores of all rows, and of labelled rows that were held out in turn.

    Parameters
    ----------
    all_rows
        [N, K]
    held_out
        the numbers of the held-out rows, [n]
    held_out_labels
        their classes, [n]
    held_out_scores
        what the other labels say of them, [n, K]
    """

    all_rows: Tensor
    held_out: Tensor
    held_out_labels: Tensor
    held_out_scores: Tensor

    @property
    def found(self) -> int:
        """The number of held-out labels that the other labels find."""
        return int((self.held_out_scores.argmax(1) == self.held_out_labels).sum())


def label_scores(graph: RowGraph, rows: Tensor, labels: Tensor, classes: int) -> LabelScores:
    """Score the classes of all rows by the classes [m] of labelled rows [m]."""
    # Classes are equally strong: how many labels a class has may say nothing about its size.
    even = torch.full((classes,), 1 / classes, dtype=torch.float64, device=labels.device)
    folds = calibration.folds(labels)
    potentials = graph.potentials.of(rows, labels, even, folds)
    length = calibration.usual_length(potentials.all_rows)
    regression = LabelRegression(graph.neighbours.rows, len(labels), classes)
    scores = calibration.scaled(potentials.all_rows, length) + regression.scores(rows, labels)
    held_out = torch.cat([rows[:0], *(fold.held_out for fold in folds)])
    held_out_scores = calibration.scaled(potentials.held_out, length)
    held_out_scores += regression.held_out_scores(rows, labels, folds)
    return LabelScores(scores, rows[held_out], labels[held_out], held_out_scores)
