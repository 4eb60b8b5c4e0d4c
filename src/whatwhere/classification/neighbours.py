"""The nearest rows of a row, and weights that fall with their distance."""

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whatwhere.errors import MissingExtra

EXACT_ROWS = 200_000
DISTANCES = 1 << 26
FAR = 1e15  # values of rows whose squared distances need float64
NARROWING = 4.0  # weights fall to exp(-4) at the farthest neighbour (Calder et al. 2020)


class Nearest(NamedTuple):
    """The nearest rows of each of n queries, nearest first.

    squares  squared distances, [n, count]
    rows     numbers of the rows, [n, count]
    """

    squares: Tensor
    rows: Tensor

    def without(self, itself: Tensor) -> "Nearest":
        """The same less one for each query: the row `itself` [n], or the farthest if it is not
        among them, as a row with many copies may be."""
        count = self.rows.shape[1] - 1
        if count == 0:
            return self
        dropped = self.rows == itself[:, None]
        dropped[:, -1] |= ~dropped.any(1)
        return Nearest(self.squares[~dropped].view(-1, count), self.rows[~dropped].view(-1, count))


class Neighbours:
    """Finds the nearest of some rows [N, D], which are kept as float32 on a device.

    exact_rows  number of rows above which an approximate index finds them
    distances   number of distances to hold in memory at a time
    """

    def __init__(
        self,
        rows: Tensor,
        device: torch.device | str = "cpu",
        *,
        exact_rows: int = EXACT_ROWS,
        distances: int = DISTANCES,
    ) -> None:
        self.distances = distances
        self.mean = rows.mean(0, keepdim=True, dtype=torch.float64)
        self.device = torch.device(device)
        self.rows = self.centred(rows)
        self.squares = self.rows.square().sum(1)
        self.exact_rows = exact_rows

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def index(self) -> Any:
        """An approximate index of many rows, made on first use; None for few rows."""
        return approximate_index(self.rows) if len(self.rows) > self.exact_rows else None

    def nearest(self, queries: Tensor, count: int) -> Nearest:
        """The `count` nearest rows of each query."""
        return self.nearest_centred(self.centred(queries), count)

    def others(self, count: int) -> Nearest:
        """The same for the rows themselves, without each row itself."""
        nearest = self.nearest_centred(self.rows, count + 1)
        return nearest.without(torch.arange(len(self), device=self.device))

    def centred(self, rows: Tensor) -> Tensor:
        """Rows less the mean of the known rows."""
        return (rows.double() - self.mean.to(rows.device)).float().to(self.device)

    def nearest_centred(self, queries: Tensor, count: int) -> Nearest:
        """The `count` nearest rows of queries that are centred."""
        if self.index is not None:
            return self._approximately(queries, count)
        blocks = queries.split(max(1, self.distances // len(self.rows)))
        parts = [self._nearest_of_block(block, count) for block in blocks]
        squares = torch.cat([part.squares for part in parts])
        return Nearest(squares, torch.cat([part.rows for part in parts]))

    def _approximately(self, queries: Tensor, count: int) -> Nearest:
        assert self.index is not None
        numbers, distances = self.index.query(queries.cpu().numpy(), k=count)
        squares = torch.from_numpy(distances).to(self.device).square()
        return Nearest(squares, torch.from_numpy(numbers).to(self.device).long())

    def _nearest_of_block(self, queries: Tensor, count: int) -> Nearest:
        if len(queries) and float(queries.abs().max()) > FAR:
            # the squares of such rows are beyond the range of float32
            all_squares = torch.cdist(queries.double(), self.rows.double()).square()
            nearest = all_squares.topk(count, dim=1, largest=False)
            return Nearest(nearest.values, nearest.indices)
        # |q - x|² = |q|² - 2 (q x - |x|² / 2): what is in brackets orders the rows of a query.
        closeness = queries @ self.rows.T
        closeness -= self.squares / 2
        found = closeness.topk(count, dim=1).indices
        # Products lose digits where rows are close, so the distances of those that were found are
        # computed again.
        step = max(1, self.distances // (count * max(self.rows.shape[1], 1)))
        pairs = zip(queries.split(step), found.split(step), strict=True)
        squares = torch.cat([(q[:, None] - self.rows[f]).square().sum(2) for q, f in pairs])
        order = squares.argsort(dim=1, stable=True)
        return Nearest(squares.gather(1, order), found.gather(1, order))


def neighbour_weights(squares: Tensor) -> Tensor:
    """Weights of neighbours from squared distances [n, k], nearest first:  exp(-4 d² / d_k²); 1
    where all are equal."""
    farthest = squares[:, -1:]
    scaled = squares / farthest.clamp(min=torch.finfo(squares.dtype).tiny)
    return torch.where(farthest > 0, (-NARROWING * scaled).exp(), 1.0)


def approximate_index(rows: Tensor) -> Any:
    """PyNNDescent's index of many rows."""
    try:
        from pynndescent import NNDescent
    except ImportError:
        raise MissingExtra("pynndescent", f"a graph of more than {EXACT_ROWS:,} rows") from None
    return NNDescent(rows.cpu().numpy(), n_neighbors=31, random_state=0)
