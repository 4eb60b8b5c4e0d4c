"""The nearest rows of a row, and weights that fall with their distance."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from whatwhere.classification.cell_index import CellIndex, CellSettings
from whatwhere.classification.nearest import Nearest, nearest_of_all
from whatwhere.progress import no_op


class Neighbours:
    """Finds the nearest of some rows [N, D], which are kept as float32 on a device.

    Parameters
    ----------
    cells
        how neighbours are found among many rows
    distances
        number of distances to hold in memory at a time
    """

    def __init__(
        self,
        rows: Tensor,
        device: torch.device | str = "cpu",
        *,
        cells: CellSettings | None = None,
        distances: int = 1 << 26,
    ) -> None:
        self.distances = distances
        self.mean = _mean(rows)
        self.device = torch.device(device)
        self.rows = self.centred(rows)
        self.squares = self.rows.square().sum(1)
        self.cells = cells or CellSettings()

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def index(self) -> CellIndex | None:
        """An index of many rows, made on first use; None for few rows."""
        if len(self.rows) < self.cells.fewest:
            return None
        return CellIndex(self.rows, self.squares, self.distances, self.cells)

    def nearest(self, queries: Tensor, count: int) -> Nearest:
        """Return the `count` nearest rows of each query."""
        return self.nearest_centred(self.centred(queries), count)

    def others(self, count: int, progress: Callable[[int], object] = no_op) -> Nearest:
        """Return the same for the rows themselves, without each row itself.

        Parameters
        ----------
        progress
            called with the number of rows that were just done
        """
        nearest = self.nearest_centred(self.rows, count + 1, progress)
        return nearest.without(torch.arange(len(self), device=self.device))

    def centred(self, rows: Tensor) -> Tensor:
        """Rows less the mean of the known rows."""
        blocks = _blocks(rows)
        mean = self.mean.to(rows.device)
        result = torch.empty(rows.shape, dtype=torch.float32, device=self.device)
        place = 0
        for block in blocks:
            result[place : place + len(block)] = (block.double() - mean).float().to(self.device)
            place += len(block)
        return result

    def nearest_centred(
        self, queries: Tensor, count: int, progress: Callable[[int], object] = no_op
    ) -> Nearest:
        """Return the `count` nearest rows of queries that are centred."""
        if self.index is not None:
            return self.index.nearest(queries, count, progress)
        nearest = nearest_of_all(queries, self.rows, self.squares, count, self.distances)
        progress(len(queries))
        return nearest


def _blocks(rows: Tensor) -> tuple[Tensor, ...]:
    """Return the rows in blocks of so few numbers that they may be float64."""
    numbers = 1 << 24
    return rows.split(max(1, numbers // max(1, rows.shape[1])))


def _mean(rows: Tensor) -> Tensor:
    """Return the mean of rows [1, D], in float64, without such a copy of all of them."""
    sums = [block.sum(0, keepdim=True, dtype=torch.float64) for block in _blocks(rows)]
    return torch.stack(sums).sum(0) / len(rows)


def neighbour_weights(squares: Tensor) -> Tensor:
    """Weights of neighbours from squared distances [n, k], nearest first:  exp(-4 d² / d_k²); 1
    where all are equal."""
    narrowing = 4.0  # weights fall to exp(-4) at the farthest neighbour (Calder et al. 2020)
    farthest = squares[:, -1:]
    scaled = squares / farthest.clamp(min=torch.finfo(squares.dtype).tiny)
    return torch.where(farthest > 0, (-narrowing * scaled).exp(), 1.0)
