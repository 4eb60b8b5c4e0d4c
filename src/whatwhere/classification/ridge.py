"""Ridge regression on classes: of all rows, to classify new rows; and of the labels, to
help the graph.

A graph spreads a few labels well, because rows without a label show where classes end. Where
classes touch, many labels determine a better linear function of the rows. So a regression on the
labels is added to the scores of the graph, with a weight that grows with the number of labels of a
class (benchmarks/labels/any_folder.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.calibration import Fold


@dataclass(frozen=True)
class RegressionSettings:
    """How labels help the graph by a regression.

    Parameters
    ----------
    penalty
        as a share of the mean squared length of the labelled rows
    weight
        of the regression next to the scores of the graph, with many labels
    half
        labels of a class at which the regression has half of this weight
    """

    penalty: float = 0.3
    weight: float = 3.0
    half: int = 10


def positive(values: Tensor) -> Tensor:
    """Return values of at least 1e-30, to divide by or to solve with where all rows are equal."""
    return values.clamp(min=1e-30)


def ridge_weights(rows: Tensor, targets: Tensor, penalty: Tensor) -> Tensor:
    """W [d, K] of (Xᵀ X + penalty) W = Xᵀ T, for centred rows X [N, d]."""
    few_rows = len(rows) < rows.shape[1]  # the smaller of two equivalent systems
    gram = (rows @ rows.T if few_rows else rows.T @ rows).double()
    diagonal = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    system = gram + positive(penalty) * diagonal
    if few_rows:
        return (rows.T.double() @ torch.linalg.solve(system, targets)).float()
    block_rows = 1 << 16  # that are float64 at a time
    blocks = zip(rows.split(block_rows), targets.split(block_rows), strict=True)
    right = sum((block.T.double() @ part for block, part in blocks), targets.new_zeros(()))
    solution: Tensor = torch.linalg.solve(system, right)
    return solution.float()


class LabelRegression:
    """Scores of classes by a ridge regression on labels.

    Parameters
    ----------
    rows
        all rows, [N, d]
    labels
        number of labels
    classes
        number of classes, K
    """

    def __init__(
        self, rows: Tensor, labels: int, classes: int, how: RegressionSettings | None = None
    ) -> None:
        self.how = how or RegressionSettings()
        self.rows = rows
        self.classes = classes
        self.weight = self.how.weight * labels / (labels + self.how.half * classes)

    def scores(self, labelled: Tensor, labels: Tensor, rows: Tensor | None = None) -> Tensor:
        """Scores [n, K] of some rows [n], or of all.

        Parameters
        ----------
        labelled
            rows with a label, [m]
        labels
            their classes, [m]
        """
        known = self.rows[labelled].double()
        centre = known.mean(0)
        known = known - centre
        targets = F.one_hot(labels, self.classes).double()
        share = targets.mean(0)
        penalty = self.how.penalty * known.square().sum() / len(known)
        weights = ridge_weights(known, targets - share, penalty)
        asked = self.rows if rows is None else self.rows[rows]
        # no centred copy of all rows
        found = (asked @ weights).double() - (centre.float() @ weights).double() + share
        return self.weight * (found - found.mean(1, keepdim=True))

    def held_out_scores(self, labelled: Tensor, labels: Tensor, folds: Sequence[Fold]) -> Tensor:
        """Scores [n, K] of the labelled rows that each fold holds out, from its other labels."""
        parts = [
            self.scores(labelled[fold.kept], labels[fold.kept], labelled[fold.held_out])
            for fold in folds
        ]
        return torch.cat([torch.zeros(0, self.classes).to(labelled.device).double(), *parts])
