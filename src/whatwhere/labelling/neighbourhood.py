"""The graph of the pictures of a session: labels spread along it, and trust is averaged over it."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from whatwhere.classification.graph import UNLABELLED, ClassPrior, GraphClassifier
from whatwhere.classification.neighbour_graph import scipy_matrix
from whatwhere.errors import ImageError
from whatwhere.labelling.label_tables import NOT_SURE
from whatwhere.labelling.map_places import map_places
from whatwhere.progress import Stage, no_op, no_stage

_LEAST_DEGREE = 1e-300  # a row without neighbours keeps the value 0


class Spread(NamedTuple):
    """The probabilities of the classes of all pictures.

    Parameters
    ----------
    classes
        their names, K, sorted
    probabilities
        [N, K]; all 0 for a picture that has no class yet
    """

    classes: tuple[str, ...]
    probabilities: np.ndarray

    @property
    def lead(self) -> np.ndarray:
        """The lead of every picture's class over the next, [N]; 1 with less than two classes."""
        if len(self.classes) < 2:
            return np.ones(len(self.probabilities))
        two = np.sort(self.probabilities, axis=1)[:, -2:]
        return np.asarray(two[:, 1] - two[:, 0])


@dataclass(frozen=True)
class WalkSettings:
    """How far a label reaches for suggestions.

    Parameters
    ----------
    life
        share of walks that go on after a step: a mean length of 50 steps crosses a class of some
        hundred pictures
    steps
        steps of a walk that are followed; after 60, the share of walks left is below a third
    """

    life: float = 0.98
    steps: int = 60


class _Last(NamedTuple):
    """The labels that were spread last, and their result."""

    labels: dict[int, str]
    spread: Spread
    was_quick: bool


class Neighbourhood:
    """Rows that describe pictures, each connected to its nearest neighbours.

    Parameters
    ----------
    rows
        descriptors [N, D]
    class_prior
        as for `GraphClassifier`
    walks
        how far a label reaches
    views
        number of columns of each view in the rows, as for `GraphClassifier`; None for one
        description
    stage
        shows the progress of finding neighbours among many rows

    Public attributes: `matrix`, the weights [N, N]; `distances`, the mean square distance of each
    row to its neighbours [N]; `parts`, the number of the connected part of each row [N].
    """

    def __init__(
        self,
        rows: torch.Tensor,
        class_prior: ClassPrior = None,
        walks: WalkSettings | None = None,
        views: Mapping[str, int] | None = None,
        stage: Stage = no_stage,
    ) -> None:
        self.rows = rows
        self.walks = walks or WalkSettings()
        self.classifier = GraphClassifier(class_prior=class_prior, views=views, stage=stage)
        self.classifier.fit(rows.numpy(), np.zeros(len(rows)))
        self._places: np.ndarray | None = None
        self._last: _Last | None = None
        self._weighed: dict[int, str] = {}
        self._unit: torch.Tensor | None = None
        self._take_graph()

    def _take_graph(self) -> None:
        """Take over the graph of the classifier, which follows the weights of the views."""
        assert self.classifier.graph_ is not None
        self._graph = self.classifier.graph_
        self.matrix = scipy_matrix(self.classifier.graph_)
        self.distances = self.classifier.distances_.cpu().numpy()
        self.parts = self.classifier.parts_.cpu().numpy()
        self._degrees = np.asarray(self.matrix.sum(1)).ravel()
        self._unit = None  # follows the weights of the views
        self._last = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_neighbors(self) -> int:
        """The number of neighbours that each row is connected to."""
        return int(self.classifier.n_neighbors)

    @property
    def places(self) -> np.ndarray:
        """Places of the pictures on a map, [N, 2], from 0 to 1; computed once."""
        if self._places is None:
            self._places = map_places(self.matrix)
        return self._places

    def spread(self, said: Mapping[int, str]) -> Spread:
        """Weigh the views by labels, and spread the labels to all pictures."""
        self.weigh(said)
        return self.follow(said)

    def weigh(self, said: Mapping[int, str], pause: Callable[[], object] = no_op) -> None:
        """Weigh the views by labels, which takes longer than to spread them. Nothing is done if
        they were weighed by the same labels last.

        Parameters
        ----------
        pause
            called often; it may call `follow`
        """
        labels = _classes_of(said)
        if labels == self._weighed or len(set(labels.values())) < 2:
            return
        self.classifier.weigh(self._targets(labels), pause)
        self._weighed = labels
        if self.classifier.graph_ is not self._graph:
            self._take_graph()

    def prepare(self, said: Mapping[int, str], pause: Callable[[], object]) -> None:
        """Compute in advance what `follow` needs of these labels, so that it then takes little time
        for one more.

        Parameters
        ----------
        pause
            called often; it may call `follow`
        """
        graph = self.classifier.row_graph_
        if graph is not None:
            graph.potentials.prepare(
                torch.tensor(sorted(_classes_of(said)), dtype=torch.long), pause
            )

    def follow(self, said: Mapping[int, str], *, quick: bool = False) -> Spread:
        """Spread labels to all pictures, with the weights that the views have.

        A single class says nothing about other pictures: their probabilities are 0. The last result
        is kept, because an election between graphs asks for it again.

        Parameters
        ----------
        quick
            as for `GraphClassifier.follow`
        """
        labels = _classes_of(said)
        last = self._last
        if last is not None and last.labels == labels and (quick or not last.was_quick):
            return last.spread
        spread = self._spread(labels, quick)
        self._last = _Last(labels, spread, quick)
        return spread

    def _spread(self, labels: Mapping[int, str], quick: bool) -> Spread:
        classes = tuple(sorted(set(labels.values())))
        result = np.zeros((len(self), len(classes)))
        if len(classes) == 1:
            result[list(labels)] = 1
        elif labels:
            # Parts of the graph without a label are what suggestions look for.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                self.classifier.follow(self._targets(labels), quick=quick)
            result[:, np.searchsorted(classes, self.classifier.classes_)] = (
                self.classifier.label_distributions_
            )
        return Spread(classes, result)

    def _targets(self, labels: Mapping[int, str]) -> np.ndarray:
        """Return labels for the classifier, [N]."""
        y = np.full(len(self), UNLABELLED, dtype=object)
        for row, name in labels.items():
            y[row] = name
        return y

    def known(self, rows: Sequence[int]) -> np.ndarray:
        """Return the share of walks from every picture that meet one of these rows before they end,
        [N]."""
        known = np.zeros(len(self))
        if not rows:  # all alike: the picture with the closest neighbours comes first
            return np.asarray(-self._degrees)
        for _ in range(self.walks.steps):
            known[rows] = 1
            known = self.walks.life * self.mean(known)
        known[rows] = 1
        return known

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the weighted mean of the neighbours of every picture."""
        return np.asarray(self.matrix @ values / np.maximum(self._degrees, _LEAST_DEGREE))

    def nearest(self, row: int, among: Sequence[int], count: int) -> list[tuple[int, float]]:
        """Return the rows among some that are nearest to a row, and the cosines of their
        descriptors."""
        others = np.array([other for other in among if other != row], dtype=int)
        unit = self.unit_rows()
        cosines = (unit @ unit[row]).numpy()[others]
        order = np.argsort(-cosines, kind="stable")[:count]
        return [(int(others[i]), float(cosines[i])) for i in order]

    def unit_rows(self) -> torch.Tensor:
        """Return the descriptors scaled to length 1, their views weighed as the labels say."""
        unit = self._unit  # another thread may let it go
        if unit is None:
            join = self.classifier.join_
            rows = self.rows if join is None else join(self.rows)
            unit = torch.nn.functional.normalize(rows, dim=1)
            self._unit = unit
        return unit


def _classes_of(said: Mapping[int, str]) -> dict[int, str]:
    """Return the labels that are classes."""
    return {row: name for row, name in said.items() if name != NOT_SURE}


def checked_rows(rows: np.ndarray | torch.Tensor, largest_value: float = 1e15) -> torch.Tensor:
    """Descriptors [N, D] as float32 on the host; raises an ImageError for those out of range.

    Parameters
    ----------
    largest_value
        largest magnitude whose squares of differences are within the range of float32
    """
    checked = torch.as_tensor(rows).float().cpu()
    largest = float(checked.abs().max()) if checked.numel() else 0.0
    if not largest <= largest_value:  # NaN is not, either
        raise ImageError(
            f"Rows have values up to {largest:g}; expected finite values up to"
            f" {largest_value:g}. Remove the others, or scale them."
        )
    return checked
