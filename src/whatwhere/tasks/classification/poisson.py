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
of digits and clothes: reproduction/studies/one_rule.py).
"""

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import MissingExtra
from whatwhere.tasks.classification.linear_svm import conjugate_gradient

try:
    from scipy import sparse
    from scipy.sparse import csgraph
except ImportError:
    raise MissingExtra("SciPy", "sklearn", "classification") from None

TAU = 3e-3
TOLERANCE, STEPS = 1e-6, 2000  # of conjugate gradients
ROUNDS, WALK = 5, 6  # of the regions, and steps of a walk in each round
SLACK = 1.3  # by how much a share of rows may differ from a class's prior
BALANCE_STEPS = 100
EXACT_ROWS = 200_000
DISTANCES = 1 << 26  # held in memory at a time
RIDGE = 0.1  # of the mean variance of a column
FAR = 1e15  # values of rows whose squared distances need float64
SMALLEST = 1e-30
NARROWING = 4.0  # weights fall to exp(-4) at the farthest neighbour (Calder et al. 2020)


def poisson_learning(graph: Tensor, rows: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """The potentials [N, K] of classes.

    graph   symmetric weights [N, N], sparse CSR, float64
    rows    the labelled rows, [m]
    labels  their classes, 0 … K - 1, [m]
    shares  that the classes have of all rows, [K]: a class with more labels than its share is
            scaled down
    """
    given = F.one_hot(labels, len(shares)).to(graph.dtype)
    seen = given.mean(0)
    source = graph.new_zeros(graph.shape[0], len(shares), layout=torch.strided)
    source[rows] = (given - seen) * (shares / seen.clamp(min=1 / (2 * len(rows))))
    return solve_poisson(graph, source)


def solve_poisson(graph: Tensor, source: Tensor) -> Tensor:
    """u of (L + τD) u = F for every column of F [N, K], by conjugate gradients.

    The system is scaled by D^-½ on both sides.
    """
    root, product = degrees(graph).sqrt()[:, None], product_of(graph)

    def system(v: Tensor) -> Tensor:
        return (1 + TAU) * v - product(v / root) / root

    return conjugate_gradient(system, source / root, TOLERANCE, STEPS) / root


def symmetric_graph(weights: Tensor, found: Tensor) -> Tensor:
    """The graph as a sparse CSR matrix [N, N], float64: the weight of a pair is the larger of both
    directions.

    weights, found  of the neighbours of every row and their numbers, [N, k]
    """
    count, k = found.shape
    parts = weights.double().flatten(), found.flatten(), torch.arange(0, count * k + 1, k)
    one_way = sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(count, count))
    both = one_way.maximum(one_way.T).tocsr()
    both.sort_indices()
    with warnings.catch_warnings():  # PyTorch calls its sparse tensors a beta version
        warnings.simplefilter("ignore", UserWarning)
        heads, columns = torch.from_numpy(both.indptr).long(), torch.from_numpy(both.indices).long()
        graph = torch.sparse_csr_tensor(heads, columns, torch.from_numpy(both.data), (count, count))
    return graph.to(found.device)


def degrees(graph: Tensor) -> Tensor:
    """The sum of the weights of every row, [N]."""
    ones = graph.new_ones(graph.shape[0], 1, layout=torch.strided)
    return (graph @ ones)[:, 0].clamp(min=1e-300)


def connected_parts(graph: Tensor) -> Tensor:
    """The number of the connected part of the graph that every row is in, [N]."""
    return torch.from_numpy(
        csgraph.connected_components(scipy_matrix(graph), directed=False)[1]
    ).to(graph.device)


def scipy_matrix(graph: Tensor) -> Any:
    parts = (graph.values(), graph.col_indices(), graph.crow_indices())
    return sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=tuple(graph.shape))


def product_of(graph: Tensor) -> Callable[[Tensor], Tensor]:
    """The map x [N, K] → W x; on a CPU by SciPy, which takes a fifth of PyTorch's time."""
    if graph.device.type != "cpu":
        return lambda x: graph @ x
    matrix = scipy_matrix(graph)
    return lambda x: torch.from_numpy(matrix @ x.numpy())


def grow_regions(
    graph: Tensor, parts: Tensor, u: Tensor, rows: Tensor, labels: Tensor, shares: Tensor | None
) -> Tensor:
    """How many of the walks of a few steps that start at a row end in the regions of the classes,
    [N, K].

    Every row takes the class that most of its walks end in, a few times over, so that borders of
    regions move to where neighbours are few (threshold dynamics: the second half of PoissonMBO).
    With `shares` [K], the number of rows of every class stays within a factor of `SLACK` of its
    share. Rows in `parts` of the graph without a label belong to no region.
    """
    degree, classes, product = degrees(graph)[:, None], u.shape[1], product_of(graph)
    given, reached = F.one_hot(labels, classes).to(u.dtype), torch.isin(parts, parts[rows])
    scores = u / u.std().clamp(min=1e-300)
    for _ in range(ROUNDS):
        region = (scores + share_offsets(scores[reached], shares)).argmax(1)
        walks = F.one_hot(region, classes).to(u.dtype) * reached[:, None]
        walks[rows] = given
        for _ in range(WALK):
            walks = product(walks) / degree
        scores = walks
    return scores


def share_offsets(scores: Tensor, shares: Tensor | None) -> Tensor:
    """Numbers [K] to add to the scores [N, K] so that no class has far too many or too few of the
    largest ones."""
    offsets = scores.new_zeros(scores.shape[1])
    if shares is None:
        return offsets
    step = 0.5 * float(scores.std())
    for _ in range(BALANCE_STEPS):
        counts = (scores + offsets).argmax(1).bincount(minlength=len(shares)) / len(scores)
        ratio = (counts / shares.clamp(min=1e-12)).clamp(min=1 / 8, max=8).log()
        limit = torch.tensor(SLACK).log().to(ratio)
        beyond = ratio - ratio.clamp(-limit, limit)
        beyond = beyond.where(shares > 0, 0.0)
        if not bool(beyond.any()):
            break
        offsets, step = offsets - step * beyond, 0.97 * step
    return offsets


class Neighbours:
    """Finds the nearest of some rows [N, D], which are kept as float32 on a device."""

    def __init__(self, rows: Tensor, device: torch.device | str = "cpu") -> None:
        self.mean = rows.mean(0, keepdim=True, dtype=torch.float64)
        self.device = torch.device(device)
        self.rows = self.centred(rows)
        self.squares = self.rows.square().sum(1)
        self.index = approximate_index(self.rows) if len(rows) > EXACT_ROWS else None

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Squared distances and numbers of the `count` nearest rows of each query, [n, count],
        nearest first."""
        return self._nearest(self.centred(queries), count)

    def others(self, count: int) -> tuple[Tensor, Tensor]:
        """The same for the rows themselves, without each row itself."""
        squares, found = self._nearest(self.rows, count + 1)
        itself = found == torch.arange(len(found), device=found.device)[:, None]
        # a row with many copies may not be among its own neighbours
        itself[:, -1] |= ~itself.any(1)
        return squares[~itself].view(-1, count), found[~itself].view(-1, count)

    def _nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        if self.index is not None:
            numbers, distances = map(
                torch.from_numpy, self.index.query(queries.cpu().numpy(), k=count)
            )
            return distances.to(self.device).square(), numbers.to(self.device).long()
        parts = [
            self._nearest_of_block(part, count)
            for part in queries.split(max(1, DISTANCES // len(self.rows)))
        ]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _nearest_of_block(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        if len(queries) and float(queries.abs().max()) > FAR:
            # the squares of such rows are beyond the range of float32
            squares = torch.cdist(queries.double(), self.rows.double()).square()
            nearest, found = squares.topk(count, dim=1, largest=False)
            return nearest, found
        distances = torch.addmm(self.squares[None, :], queries, self.rows.T, alpha=-2)
        found = distances.topk(count, dim=1, largest=False).indices
        # Products lose digits where rows are close, so the distances of those that were found are
        # computed again.
        step = max(1, DISTANCES // (count * max(self.rows.shape[1], 1)))
        pairs = zip(queries.split(step), found.split(step), strict=True)
        squares = torch.cat([(q[:, None] - self.rows[f]).square().sum(2) for q, f in pairs])
        order = squares.argsort(dim=1, stable=True)
        return squares.gather(1, order), found.gather(1, order)

    def centred(self, rows: Tensor) -> Tensor:
        return (rows.double() - self.mean.to(rows.device)).float().to(self.device)


class NewRows:
    """Probabilities of new rows from those of rows that are known.

    Two scores, each with a deviation of 1 over the known rows, are added; their softmax are the
    probabilities. One is the weighted mean of the neighbours' probabilities; the other is linear, a
    ridge regression on the classes of all known rows, which is better where neighbours are far.

    neighbours     the known rows
    probabilities  of their classes, [N, K]
    count          of neighbours
    """

    def __init__(self, neighbours: Neighbours, probabilities: Tensor, count: int) -> None:
        self.neighbours, self.count = neighbours, min(count, len(neighbours.rows))
        self.probabilities = probabilities.to(neighbours.device).double()

    @cached_property
    def regression(self) -> Tensor:
        """Weights [d, K] of the linear score, scaled."""
        classes = F.one_hot(self.probabilities.argmax(1), self.probabilities.shape[1]).double()
        weights = ridge_weights(self.neighbours.rows, classes - classes.mean(0))
        return weights / (self.neighbours.rows @ weights).std(correction=0).clamp(min=SMALLEST)

    def __call__(self, queries: Tensor) -> Tensor:
        squares, found = self.neighbours.nearest(queries, self.count)
        weights = neighbour_weights(squares.double())
        mean = (weights[:, :, None] * self.probabilities[found]).sum(1) / weights.sum(
            1, keepdim=True
        )
        centred = self.neighbours.centred(queries)
        linear = centred @ self.regression
        if not linear.isfinite().all():
            linear = centred.double() @ self.regression.double()
        return (mean / self.probabilities.std(correction=0).clamp(min=SMALLEST) + linear).softmax(1)


def ridge_weights(rows: Tensor, targets: Tensor) -> Tensor:
    """W [d, K] of (Xᵀ X + s) W = Xᵀ T, for centred rows X [N, d]; s is a tenth of the mean
    diagonal element of Xᵀ X."""
    few_rows = len(rows) < rows.shape[1]  # the smaller of two equivalent systems
    gram = (rows @ rows.T if few_rows else rows.T @ rows).double()
    s = (RIDGE * rows.double().square().sum() / rows.shape[1]).clamp(min=SMALLEST)
    system = gram + s * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    solution: Tensor = torch.linalg.solve(
        system, targets if few_rows else rows.T.double() @ targets
    )
    return (rows.T.double() @ solution if few_rows else solution).float()


def approximate_index(rows: Tensor) -> Any:
    try:
        from pynndescent import NNDescent
    except ImportError:
        raise MissingExtra(
            "PyNNDescent", "neighbours", f"a graph of more than {EXACT_ROWS:,} rows"
        ) from None
    return NNDescent(rows.cpu().numpy(), n_neighbors=31, random_state=0)


def neighbour_weights(squares: Tensor) -> Tensor:
    """Weights of neighbours from squared distances [n, k], nearest first:  exp(-4 d² / d_k²); 1
    where all are equal."""
    farthest = squares[:, -1:]
    scaled = squares / farthest.clamp(min=torch.finfo(squares.dtype).tiny)
    return torch.where(farthest > 0, (-NARROWING * scaled).exp(), 1.0)
