"""Classes of new rows, from the classes of known rows."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.calibration import mix_isolated, usual_distance
from whatwhere.classification.nearest import Nearest
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.classification.ridge import positive, ridge_weights


@dataclass(frozen=True)
class NewRowSettings:
    """How new rows get their classes.

    Parameters
    ----------
    penalty
        of the regression, as a share of the mean variance of a column
    sample
        known rows on which the sharpness is chosen
    """

    penalty: float = 0.1
    sample: int = 1000


class NewRows:
    """Probabilities of new rows from the probabilities of known rows.

    Two scores, each with a deviation of 1 over the known rows, are added. One is the weighted mean
    of the neighbours' probabilities; the other is linear, a ridge regression on the classes of all
    known rows, which is better where neighbours are far. The softmax of the sum, times a sharpness,
    gives the probabilities. The sharpness is chosen so that known rows, treated as new ones, are on
    average as sure as their probabilities say. New rows that are farther from known ones than these
    are from each other are less sure.

    Parameters
    ----------
    neighbours
        the known rows
    probabilities
        probabilities of their classes, [N, K]
    count
        number of neighbours
    """

    def __init__(
        self,
        neighbours: Neighbours,
        probabilities: Tensor,
        count: int,
        how: NewRowSettings | None = None,
    ) -> None:
        self.how = how or NewRowSettings()
        self.neighbours = neighbours
        self.count = min(count, len(neighbours.rows))
        self.probabilities = probabilities.to(neighbours.device).double()

    def __call__(self, queries: Tensor) -> Tensor:
        nearest = self.neighbours.nearest(queries, self.count)
        scores = self._scores(self.neighbours.centred(queries), nearest)
        probabilities = (self.sharpness * scores).softmax(1)
        return mix_isolated(probabilities, nearest.squares.double().mean(1), self.usual_distance)

    def _scores(self, centred: Tensor, nearest: Nearest) -> Tensor:
        weights = neighbour_weights(nearest.squares.double())
        total = weights.sum(1, keepdim=True)
        mean = (weights[:, :, None] * self.probabilities[nearest.rows]).sum(1) / total
        deviation = positive(self.probabilities.std(correction=0))
        linear = centred @ self.regression
        if not linear.isfinite().all():  # of rows that are very far away
            linear = centred.double() @ self.regression.double()
        return mean / deviation + linear

    @cached_property
    def regression(self) -> Tensor:
        """Weights [d, K] of the linear score, scaled."""
        classes = F.one_hot(self.probabilities.argmax(1), self.probabilities.shape[1]).double()
        rows = self.neighbours.rows
        penalty = (
            self.how.penalty * self.neighbours.squares.sum(dtype=torch.float64) / rows.shape[1]
        )
        weights = ridge_weights(rows, classes - classes.mean(0), penalty)
        return weights / positive((rows @ weights).std(correction=0))

    @cached_property
    def sample(self) -> Tensor:
        """Numbers of some known rows, at even distances."""
        count = len(self.neighbours.rows)
        places = torch.linspace(0, count - 1, min(count, self.how.sample), dtype=torch.float64)
        return places.long().to(self.neighbours.device)

    @cached_property
    def sample_neighbours(self) -> Nearest:
        """The nearest others of the sampled rows; of a single row, itself."""
        rows = self.neighbours.rows[self.sample]
        nearest = self.neighbours.nearest_centred(rows, min(self.count + 1, len(self.neighbours)))
        return nearest.without(self.sample)

    @cached_property
    def usual_distance(self) -> Tensor:
        """The mean squared distance from their neighbours that most known rows are below."""
        return usual_distance(self.sample_neighbours.squares.double().mean(1))

    @cached_property
    def sharpness(self) -> float:
        """The factor of the scores with which known rows are as sure as their probabilities, by
        bisection."""
        scores = self._scores(self.neighbours.rows[self.sample], self.sample_neighbours)
        wanted = float(self.probabilities[self.sample].max(1).values.mean())
        low = 0.01
        high = 100.0
        for _ in range(40):
            middle = (low * high) ** 0.5
            if float((middle * scores).softmax(1).max(1).values.mean()) < wanted:
                low = middle
            else:
                high = middle
        return middle
