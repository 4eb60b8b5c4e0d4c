"""Nearest neighbours of rows, and what they say of new rows.

They are found block by block with matrix products; above `EXACT_ROWS` rows by PyNNDescent, approximately.
"""

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import MissingExtra

EXACT_ROWS = 200_000
DISTANCES = 1 << 26  # held in memory at a time
RIDGE = 0.1  # of the mean variance of a column
SMALLEST = 1e-30
NARROWING = 4.0  # weights fall to exp(-4) at the farthest neighbour (Calder et al. 2020)


class Neighbours:
    """Finds the nearest of some rows [N, D], which are kept as float32 on a device."""

    def __init__(self, rows: Tensor, device: torch.device | str = "cpu") -> None:
        self.mean = rows.mean(0, keepdim=True, dtype=torch.float64)
        self.device = torch.device(device)
        self.rows = self.centred(rows)
        self.squares = self.rows.square().sum(1)
        self.index = approximate_index(self.rows) if len(rows) > EXACT_ROWS else None

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Squared distances and numbers of the `count` nearest rows of each query, [n, count], nearest first."""
        return self._nearest(self.centred(queries), count)

    def others(self, count: int) -> tuple[Tensor, Tensor]:
        """The same for the rows themselves, without each row itself."""
        squares, found = self._nearest(self.rows, count + 1)
        itself = found == torch.arange(len(found), device=found.device)[:, None]
        itself[:, -1] |= ~itself.any(1)  # a row with many copies may not be among its own neighbours
        return squares[~itself].view(-1, count), found[~itself].view(-1, count)

    def _nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        if self.index is not None:
            numbers, distances = map(torch.from_numpy, self.index.query(queries.cpu().numpy(), k=count))
            return distances.to(self.device).square(), numbers.to(self.device).long()
        parts = [self._nearest_of_block(part, count) for part in queries.split(max(1, DISTANCES // len(self.rows)))]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _nearest_of_block(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        distances = torch.addmm(self.squares[None, :], queries, self.rows.T, alpha=-2)
        found = distances.topk(count, dim=1, largest=False).indices
        # Products lose digits where rows are close, so the distances of those that were found are computed again.
        step = max(1, DISTANCES // (count * max(self.rows.shape[1], 1)))
        pairs = zip(queries.split(step), found.split(step), strict=True)
        squares = torch.cat([(q[:, None] - self.rows[f]).square().sum(2) for q, f in pairs])
        order = squares.argsort(dim=1, stable=True)
        return squares.gather(1, order), found.gather(1, order)

    def centred(self, rows: Tensor) -> Tensor:
        return (rows.double() - self.mean.to(rows.device)).float().to(self.device)


class NewRows:
    """Probabilities of new rows from those of rows that are known.

    Two scores, each with a deviation of 1 over the known rows, are added; their softmax are the probabilities. One is
    the weighted mean of the neighbours' probabilities; the other is linear, a ridge regression on the classes of all
    known rows, which is better where neighbours are far.

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
        mean = (weights[:, :, None] * self.probabilities[found]).sum(1) / weights.sum(1, keepdim=True)
        linear = self.neighbours.centred(queries) @ self.regression
        return (mean / self.probabilities.std(correction=0).clamp(min=SMALLEST) + linear).softmax(1)


def ridge_weights(rows: Tensor, targets: Tensor) -> Tensor:
    """W [d, K] of (Xᵀ X + s) W = Xᵀ T, for centred rows X [N, d]; s is a tenth of the mean diagonal element of Xᵀ X."""
    few_rows = len(rows) < rows.shape[1]  # the smaller of two equivalent systems
    gram = (rows @ rows.T if few_rows else rows.T @ rows).double()
    s = (RIDGE * rows.double().square().sum() / rows.shape[1]).clamp(min=SMALLEST)
    system = gram + s * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    solution: Tensor = torch.linalg.solve(system, targets if few_rows else rows.T.double() @ targets)
    return (rows.T.double() @ solution if few_rows else solution).float()


def approximate_index(rows: Tensor) -> Any:
    try:
        from pynndescent import NNDescent
    except ImportError:
        raise MissingExtra("PyNNDescent", "neighbours", f"a graph of more than {EXACT_ROWS:,} rows") from None
    return NNDescent(rows.cpu().numpy(), n_neighbors=31, random_state=0)


def neighbour_weights(squares: Tensor) -> Tensor:
    """Weights of neighbours from squared distances [n, k], nearest first:  exp(-4 d² / d_k²); 1 where all are equal."""
    farthest = squares[:, -1:]
    scaled = squares / farthest.clamp(min=torch.finfo(squares.dtype).tiny)
    return torch.where(farthest > 0, (-NARROWING * scaled).exp(), 1.0)
