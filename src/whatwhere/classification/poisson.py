"""Labels spread over a graph: Poisson learning, and regions that grow into the shares that classes should have.

    J. Calder, B. Cook, M. Thorpe, D. Slepčev, "Poisson learning: graph based semi-supervised learning at very low label
    rates", ICML 2020.

Every labelled row is a source of its class and a sink of the others; the potentials u of the classes solve

    (L + τD) u = F,      L = D - W,  D = diag(W 1),      F_i = y_i - mean of the y of all labels, 0 without a label

and the largest potential is the class of a row. τ ends the walks that carry labels after about 1/τ steps, so that a
label reaches its surroundings and not the whole graph (chosen on validation images of digits and clothes:
reproduction/studies/one_rule.py).
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.linear_svm import conjugate_gradient
from whatwhere.errors import MissingExtra

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


def poisson_learning(graph: Tensor, rows: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """The potentials [N, K] of classes.

    graph   symmetric weights [N, N], sparse CSR, float64
    rows    the labelled rows, [m]
    labels  their classes, 0 … K - 1, [m]
    shares  that the classes have of all rows, [K]: a class with more labels than its share is scaled down
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
    """The graph as a sparse CSR matrix [N, N], float64: the weight of a pair is the larger of both directions.

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
    return torch.from_numpy(csgraph.connected_components(scipy_matrix(graph), directed=False)[1]).to(graph.device)


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
    """How many of the walks of a few steps that start at a row end in the regions of the classes, [N, K].

    Every row takes the class that most of its walks end in, a few times over, so that borders of regions move to where
    neighbours are few (threshold dynamics: the second half of PoissonMBO). With `shares` [K], the number of rows of
    every class stays within a factor of `SLACK` of its share. Rows in `parts` of the graph without a label belong to no
    region.
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
    """Numbers [K] to add to the scores [N, K] so that no class has far too many or too few of the largest ones."""
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
