"""The rows that are nearest to some queries, by comparing all of them."""

from typing import NamedTuple

import torch
from torch import Tensor


class Nearest(NamedTuple):
    """The nearest rows of each of n queries, nearest first.

    Parameters
    ----------
    squares
        squared distances, [n, count]
    rows
        numbers of the rows, [n, count]
    """

    squares: Tensor
    rows: Tensor

    def without(self, itself: Tensor) -> "Nearest":
        """Return the same less one for each query: the row `itself` [n], or the farthest if it is
        not among them, as a row with many copies may be."""
        count = self.rows.shape[1] - 1
        if count == 0:
            return self
        dropped = self.rows == itself[:, None]
        dropped[:, -1] |= ~dropped.any(1)
        return Nearest(self.squares[~dropped].view(-1, count), self.rows[~dropped].view(-1, count))


def nearest_of_all(
    queries: Tensor, rows: Tensor, squares: Tensor, count: int, distances: int
) -> Nearest:
    """Find the nearest of some rows [N, D] for each query [n, D].

    Parameters
    ----------
    squares
        squared lengths of the rows, [N]
    distances
        number of distances to hold in memory at a time
    """
    blocks = queries.split(max(1, distances // max(1, len(rows))))
    parts = [_nearest_of_block(block, rows, squares, count, distances) for block in blocks]
    return Nearest(torch.cat([part.squares for part in parts]), torch.cat([p.rows for p in parts]))


def _nearest_of_block(
    queries: Tensor, rows: Tensor, squares: Tensor, count: int, distances: int
) -> Nearest:
    if len(queries) and float(queries.abs().max()) > 1e15:
        # the squares of such rows are beyond the range of float32
        all_squares = torch.cdist(queries.double(), rows.double()).square()
        nearest = all_squares.topk(count, dim=1, largest=False)
        return Nearest(nearest.values, nearest.indices)
    # |q - x|² = |q|² - 2 (q x - |x|² / 2): what is in brackets orders the rows of a query.
    closeness = queries @ rows.T
    closeness -= squares / 2
    found = closeness.topk(count, dim=1).indices
    # Products lose digits where rows are close, so the distances of those that were found are
    # computed again.
    step = max(1, distances // (count * max(rows.shape[1], 1)))
    pairs = zip(queries.split(step), found.split(step), strict=True)
    exact = torch.cat([(q[:, None] - rows[f]).square().sum(2) for q, f in pairs])
    order = exact.argsort(dim=1, stable=True)
    return Nearest(exact.gather(1, order), found.gather(1, order))
