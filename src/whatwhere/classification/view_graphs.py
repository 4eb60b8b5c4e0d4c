"""One graph for each view of the same pictures, added to one graph by the weights of the views."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from whatwhere.classification.calibration import HELD_OUT_TOLERANCE
from whatwhere.classification.label_scores import label_scores
from whatwhere.classification.neighbours import Neighbours
from whatwhere.classification.poisson import label_sources, tau_for
from whatwhere.classification.row_graph import RowGraph, joined_graph
from whatwhere.classification.view_join import ViewJoin
from whatwhere.classification.view_weights import ViewEvidence, ViewWeighting, ViewWeights
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

    join   joins the views with equal weights
    parts  the rows of each view, centred and of unit length
    """

    join: ViewJoin
    parts: list[Tensor]
    views: list[RowGraph]
    weighting: ViewWeighting
    equal: Joined = field(init=False)
    last: Joined = field(init=False)

    def __post_init__(self) -> None:
        self.equal = self._joined(ViewWeights.equal(list(self.join.columns)))
        self.last = self.equal

    @classmethod
    def of(
        cls,
        join: ViewJoin,
        rows: Tensor,
        device: object,
        count: int,
        weighting: ViewWeighting,
        progress: Callable[[int], Any] = no_op,
    ) -> "ViewGraphs":
        """Connect the rows [N, Σ d] by each view, every row to `count` others.

        progress  called with the number of rows that were just connected by a view
        """
        parts = join.parts(rows)
        views = [RowGraph.of(Neighbours(part, str(device)), count, progress) for part in parts]
        return cls(join, parts, views, weighting)

    def weighed(self, rows: Tensor, labels: Tensor, classes: int) -> Joined:
        """Join the graphs by what the classes [m] of labelled rows [m] say about the views."""
        together = label_scores(self.equal.graph, rows, labels, classes).all_rows.argmax(1)
        evidence = []
        for view in self.views:
            scores = label_scores(view, rows, labels, classes)
            of_view = scores.all_rows.argmax(1)
            agreement = float((of_view == together).double().mean())
            held_out = len(scores.held_out)
            stability = None
            if held_out < self.weighting.enough:
                per_class = max(1, len(rows) // classes)
                stability = _stability(view, of_view, classes, per_class, self.weighting.repeats)
            evidence.append(ViewEvidence(scores.found, held_out, agreement, stability))
        weights = ViewWeights.of(list(self.join.columns), evidence, self.weighting)
        if weights.values == self.last.weights.values:  # the graph keeps what it has computed
            self.last = Joined(weights, self.last.join, self.last.graph)
        else:
            self.last = self._joined(weights)
        return self.last

    def _joined(self, weights: ViewWeights) -> Joined:
        join = ViewJoin(self.join.columns, self.join.mean, weights.values)
        graph = joined_graph(self.views, list(weights.values), join.joined(self.parts))
        return Joined(weights, join, graph)


def _stability(graph: RowGraph, found: Tensor, classes: int, per_class: int, repeats: int) -> float:
    """Measure the share of rows that keep their class if other rows had been labelled.

    found      the classes of all rows by this graph, [N]
    per_class  labels of each class
    repeats    how often other labels are drawn
    """
    generator = torch.Generator().manual_seed(0)
    even = torch.full((classes,), 1 / classes, dtype=torch.float64, device=found.device)
    sources = []
    for _ in range(repeats):
        order = torch.randperm(len(found), generator=generator).to(found.device)
        rows = torch.cat([order[found[order] == label][:per_class] for label in range(classes)])
        sources.append(label_sources(graph.graph, rows, found[rows], even))
    tau = tau_for(classes * per_class, len(found))
    u = graph.potentials.system.solve(torch.cat(sources, 1).float(), HELD_OUT_TOLERANCE, tau)
    again = torch.stack([part.argmax(1) for part in u.split(classes, 1)])
    return float((again == found).double().mean())
