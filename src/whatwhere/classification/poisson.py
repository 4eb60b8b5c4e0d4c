"""Labels spread over the graph of nearest neighbours: Poisson learning, and regions that grow to
the classes' shares.

    J. Calder, B. Cook, M. Thorpe, D. Slepčev, "Poisson learning: graph based semi-supervised
    learning at very low label rates", ICML 2020.

Every labelled row is a source of its class and a sink of the others; the potentials u of the
classes solve

    (L + τD) u = F,      L = D - W,  D = diag(W 1),      F_i = y_i - mean of the y of all labels, 0
                         without a label

and the largest potential is the class of a row. τ ends the walks that carry labels after about 1/τ
steps, so that a label reaches its surroundings and not the whole graph (chosen on validation images
of digits and clothes: benchmarks/labels/one_rule.py; with many labels in a small set, on steel
surfaces and blood cells).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.neighbour_graph import (
    bandwidth_order,
    degrees,
    product_of,
    reordered,
    scaled_graph,
)
from whatwhere.ops.conjugate_gradient import conjugate_gradient


@dataclass(frozen=True)
class PoissonSettings:
    """How the potentials are solved for.

    Parameters
    ----------
    tau
        the smallest τ: walks of 1/τ steps, about 330
    tolerance
        of the residual of conjugate gradients, relative to F
    steps
        of conjugate gradients, at most
    """

    tau: float = 3e-3
    tolerance: float = 1e-6
    steps: int = 2000


@dataclass(frozen=True)
class RegionSettings:
    """How regions grow to the shares of the classes.

    Parameters
    ----------
    rounds
        times that every row takes the class that most of its walks end in
    walk
        steps of a walk in each round
    slack
        factor by which a class's share of the rows may differ from the given one
    balance
        steps of the search for numbers that bound the shares
    """

    rounds: int = 5
    walk: int = 6
    slack: float = 1.3
    balance: int = 100


POISSON = PoissonSettings()
_REGIONS = RegionSettings()


def poisson_learning(
    graph: Tensor,
    rows: Tensor,
    labels: Tensor,
    shares: Tensor,
    tolerance: float = POISSON.tolerance,
    tau: float | None = None,
) -> Tensor:
    """Return the potentials [N, K] of classes.

    Parameters
    ----------
    graph
        symmetric weights [N, N], sparse CSR, float64
    rows
        the labelled rows, [m]
    labels
        their classes, 0 … K - 1, [m]
    shares
        shares of the classes among all rows, [K]: a class with more labels than its share is scaled
        down
    tolerance
        tolerance of the residual, relative to F
    tau
        τ; None for the usual one
    """
    return solve_poisson(graph, label_sources(graph, rows, labels, shares), tolerance, tau)


def tau_for(labels: int, rows: int) -> float:
    """τ for a number of labels: walks need not go farther than to the next label, which is about
    as many steps away as there are rows for each label."""
    return max(POISSON.tau, labels / rows)


def label_sources(graph: Tensor, rows: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """F [N, K] of labelled rows; a class without a label has neither sources nor sinks."""
    source = graph.new_zeros(graph.shape[0], len(shares), layout=torch.strided)
    source[rows] = source_strengths(labels, shares)
    return source


def source_strengths(labels: Tensor, shares: Tensor) -> Tensor:
    """Return the rows of F that are not 0, [m, K]: the labelled ones."""
    given = F.one_hot(labels, len(shares)).to(shares.dtype)
    seen = given.mean(0)
    return (given - seen) * (shares / seen.clamp(min=1 / (2 * len(labels))))


def solve_poisson(
    graph: Tensor, source: Tensor, tolerance: float = POISSON.tolerance, tau: float | None = None
) -> Tensor:
    """u of (L + τD) u = F for every column of F [N, K], by conjugate gradients."""
    return PoissonSystem(graph).solve(source, tolerance, tau)


class PoissonSystem:
    """Solves (L + τD) u = F on a graph, a sparse CSR matrix [N, N].

    The system is scaled by D^-½ on both sides. Its rows are in an order in which neighbours are
    near each other in memory: products take two thirds of the time.
    """

    def __init__(self, graph: Tensor) -> None:
        root = degrees(graph).sqrt()
        self.order = bandwidth_order(graph)
        self.place = self.order.argsort()
        self.root = root[self.order][:, None]
        self.scaled = reordered(scaled_graph(graph, 1 / root), self.order)

    def solve(
        self,
        source: Tensor,
        tolerance: float = POISSON.tolerance,
        tau: float | Tensor | None = None,
    ) -> Tensor:
        """u [N, K] for every column of F [N, K], in the precision of F.

        Parameters
        ----------
        tau
            one for all columns, or one for each, [K]
        """
        product = product_of(self.scaled.to(source.dtype))
        kept = 1 + (POISSON.tau if tau is None else tau)

        def system(v: Tensor) -> Tensor:
            return kept * v - product(v)

        root = self.root.to(source.dtype)
        right = source[self.order] / root
        start = torch.zeros_like(right)
        u = conjugate_gradient(system, right, start, POISSON.steps, dim=0, tolerance=tolerance)
        return (u / root)[self.place]


def grow_regions(
    graph: Tensor,
    parts: Tensor,
    u: Tensor,
    rows: Tensor,
    labels: Tensor,
    shares: Tensor,
    how: RegionSettings = _REGIONS,
) -> Tensor:
    """Return how many of the walks of a few steps that start at a row end in the regions of the
    classes, [N, K].

    Every row takes the class that most of its walks end in, a few times over, so that borders of
    regions move to where neighbours are few (threshold dynamics: the second half of PoissonMBO).
    The number of rows of every class stays within a factor of `how.slack` of its share [K]: without
    this bound one class can swallow all others. Rows in `parts` of the graph without a label belong
    to no region.
    """
    degree = degrees(graph)[:, None]
    classes = u.shape[1]
    product = product_of(graph)
    given = F.one_hot(labels, classes).to(u.dtype)
    reached = torch.isin(parts, parts[rows])
    scores = u / u.std().clamp(min=1e-300)
    for _ in range(how.rounds):
        region = (scores + share_offsets(scores[reached], shares, how)).argmax(1)
        walks = F.one_hot(region, classes).to(u.dtype) * reached[:, None]
        walks[rows] = given
        for _ in range(how.walk):
            walks = product(walks) / degree
        scores = walks
    return scores


def share_offsets(scores: Tensor, shares: Tensor, how: RegionSettings = _REGIONS) -> Tensor:
    """Numbers [K] to add to the scores [N, K] so that no class has far too many or too few of the
    largest ones."""
    offsets = scores.new_zeros(scores.shape[1])
    step = 0.5 * float(scores.std())
    for _ in range(how.balance):
        counts = (scores + offsets).argmax(1).bincount(minlength=len(shares)) / len(scores)
        ratio = (counts / shares.clamp(min=1e-12)).clamp(min=1 / 8, max=8).log()
        limit = torch.tensor(how.slack).log().to(ratio)
        beyond = ratio - ratio.clamp(-limit, limit)
        beyond = beyond.where(shares > 0, 0.0)
        if not bool(beyond.any()):
            break
        offsets = offsets - step * beyond
        step = 0.97 * step
    return offsets
