"""One graph for each view of the same pictures, added to one graph by the weights of the views and
by how far all views support its pairs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from whatwhere.classification.label_scores import label_scores
from whatwhere.classification.neighbour_graph import scipy_matrix, weighted_pairs
from whatwhere.classification.neighbours import Neighbours
from whatwhere.classification.row_graph import RowGraph, joined_graph
from whatwhere.classification.view_join import ViewJoin
from whatwhere.classification.view_support import ViewSupport
from whatwhere.classification.view_weights import (
    Overlap,
    ViewEvidence,
    ViewWeighting,
    ViewWeights,
)
from whatwhere.progress import no_op


@dataclass(frozen=True)
class Joined:
    """The weights of the views, how they join rows, and the joined graph."""

    weights: ViewWeights
    join: ViewJoin
    graph: RowGraph


@dataclass
class ViewGraphs:
    """The graphs of views, and the last one that they were joined to.

    Parameters
    ----------
    join
        joins the views with equal weights
    parts
        the rows of each view, centred and of unit length
    overlaps
        how far the neighbours of each view are also neighbours in others
    supported
        the graphs of the views, in which a pair counts more if all views find it alike
    start
        the views joined as before there are labels
    """

    join: ViewJoin
    parts: list[Tensor]
    views: list[RowGraph]
    weighting: ViewWeighting
    overlaps: list[Overlap] = field(init=False)
    supported: list[Tensor] = field(init=False)
    start: Joined = field(init=False)
    last: Joined = field(init=False)

    def __post_init__(self) -> None:
        self.overlaps = _overlaps(self.views)
        support = ViewSupport(self.parts)
        self.supported = [weighted_pairs(view.even_graph, support) for view in self.views]
        names = list(self.join.columns)
        self.start = self._joined(ViewWeights.before_labels(names, self.overlaps, self.weighting))
        self.last = self.start

    @classmethod
    def of(
        cls,
        join: ViewJoin,
        rows: Tensor,
        device: object,
        count: int,
        weighting: ViewWeighting,
        progress: Callable[[int], object] = no_op,
    ) -> "ViewGraphs":
        """Connect the rows [N, Σ d] by each view, every row to `count` others.

        Parameters
        ----------
        progress
            called with the number of rows that were just connected by a view
        """
        parts = join.parts(rows)
        views = [RowGraph.of(Neighbours(part, str(device)), count, progress) for part in parts]
        return cls(join, parts, views, weighting)

    def weighed(
        self, rows: Tensor, labels: Tensor, classes: int, pause: Callable[[], object] = no_op
    ) -> Joined:
        """Join the graphs by what the classes [m] of labelled rows [m] say about the views.

        Parameters
        ----------
        pause
            called between views
        """
        together = label_scores(self.start.graph, rows, labels, classes).all_rows.argmax(1)
        evidence = []
        for view in self.views:
            pause()
            scores = label_scores(view, rows, labels, classes)
            of_view = scores.all_rows.argmax(1)
            agreement = float((of_view == together).double().mean())
            evidence.append(ViewEvidence(scores.found, len(scores.held_out), agreement))
        pause()
        names = list(self.join.columns)
        weights = ViewWeights.of(names, evidence, self.weighting, self.overlaps)
        if weights.values == self.last.weights.values:  # the graph keeps what it has computed
            self.last = Joined(weights, self.last.join, self.last.graph)
        else:
            self.last = self._joined(weights)
        return self.last

    def _joined(self, weights: ViewWeights) -> Joined:
        join = ViewJoin(self.join.columns, self.join.mean, weights.values)
        rows = join.joined(self.parts)
        graph = joined_graph(self.views, self.supported, list(weights.values), rows)
        return Joined(weights, join, graph)


def _overlaps(views: Sequence[RowGraph]) -> list[Overlap]:
    """Return how far the neighbours of each view are also neighbours in others."""
    pairs = [scipy_matrix(view.graph).astype(bool) for view in views]
    overlaps = []
    for one in pairs:
        shares = []
        for other in pairs:
            if other is not one:
                both = one.multiply(other).nnz / (one.nnz * other.nnz) ** 0.5
                chance = (one.nnz * other.nnz) ** 0.5 / one.shape[0] ** 2
                shares.append(max(0.0, both - chance))
        kept = sorted(shares)[:-1] or shares
        overlaps.append(Overlap(sum(kept) / max(1, len(kept)), sum(shares)))
    return overlaps
