"""The nearest of many rows, by cells: a row is compared only with rows of its own and of near
cells.

k-means of a sample divides the rows into cells of some hundred rows. How many near cells are
compared follows from a sample of rows, whose true neighbours are known: as many as find the wanted
share of them (benchmarks/labels/many_rows.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from whatwhere.classification.nearest import Nearest, nearest_of_all
from whatwhere.progress import no_op
from whatwhere.spec.checks import Checked, Count, Positive


@dataclass(frozen=True)
class CellSettings(Checked):
    """How the neighbours of many rows are found.

    Parameters
    ----------
    fewest
        rows from which on cells are used; of fewer, all distances take minutes at most, and a
        missed neighbour can cost more (benchmarks/labels/results/same_rows.jsonl)
    growth
        how many times more cells are compared in the next try
    cell
        rows of a cell, on average; time is least near here
    per_cell
        rows of the sample that k-means takes, for each cell
    rounds
        rounds of k-means
    recall
        share of the true neighbours that is found
    sample
        rows on which this share is measured
    neighbours
        neighbours that are looked for then, as the graph does
    """

    fewest: Count = 100_000
    growth: Positive = 1.5
    cell: Count = 500
    per_cell: Count = 40
    rounds: Count = 4
    recall: Positive = 0.98
    sample: Count = 200
    neighbours: Count = 11


class CellIndex:
    """An index of rows [N, D].

    Parameters
    ----------
    rows
        the rows, float32
    squares
        their squared lengths, [N]
    distances
        number of distances to hold in memory at a time

    Public attributes: `cells`, the number of cells that a row is compared with; `recall`, the share
    of the true neighbours that this finds, measured on a sample.
    """

    def __init__(
        self, rows: Tensor, squares: Tensor, distances: int, settings: CellSettings | None = None
    ) -> None:
        self._rows = rows
        self._squares = squares
        self._distances = distances
        how = settings or CellSettings()
        self._centres = _cell_centres(rows, max(1, len(rows) // how.cell), how)
        cells = self._cells_of(rows)
        self._order = cells.argsort(stable=True)
        self._sizes = cells.bincount(minlength=len(self._centres))
        self._ends = self._sizes.cumsum(0)
        self._near = _nearest_centres(self._centres)
        self.cells, self.recall = self._enough_cells(how)

    def nearest(
        self, queries: Tensor, count: int, progress: Callable[[int], object] = no_op
    ) -> Nearest:
        """Find the `count` nearest rows of each query, few of them wrong.

        Parameters
        ----------
        progress
            called with the number of queries that were just done
        """
        return self._search(queries, count, self.cells, progress)

    def _search(
        self, queries: Tensor, count: int, cells: int, progress: Callable[[int], object] = no_op
    ) -> Nearest:
        squares = queries.new_empty(len(queries), count)
        found = torch.empty(len(queries), count, dtype=torch.long, device=queries.device)
        own = self._cells_of(queries)
        order = own.argsort(stable=True)
        sizes = own.bincount(minlength=len(self._centres)).tolist()
        for cell, asked in enumerate(order.split(sizes)):
            if not len(asked):
                continue
            among = self._rows_near(cell, cells, count)
            nearest = nearest_of_all(
                queries[asked], self._rows[among], self._squares[among], count, self._distances
            )
            squares[asked] = nearest.squares
            found[asked] = among[nearest.rows]
            progress(len(asked))
        return Nearest(squares, found)

    def _rows_near(self, cell: int, cells: int, fewest: int) -> Tensor:
        """Return the numbers of the rows of the cells nearest to one, at least some."""
        near = self._near[cell]
        reached = int((self._sizes[near].cumsum(0) < fewest).sum()) + 1
        chosen = near[: max(cells, reached)].tolist()
        parts = [
            self._order[self._ends[one] - self._sizes[one] : self._ends[one]] for one in chosen
        ]
        return torch.cat(parts)

    def _cells_of(self, rows: Tensor) -> Tensor:
        """Return the cell of each row, [n]."""
        return _nearest_of(rows, self._centres, self._distances)

    def _enough_cells(self, how: CellSettings) -> tuple[int, float]:
        """Return the number of cells to compare with, and the share of the true neighbours it
        finds."""
        generator = torch.Generator().manual_seed(0)
        sample = torch.randperm(len(self._rows), generator=generator)[: how.sample]
        queries = self._rows[sample.to(self._rows.device)]
        count = min(how.neighbours, len(self._rows))
        true = nearest_of_all(queries, self._rows, self._squares, count, self._distances)
        farthest = true.squares[:, -1:] * (1 + 1e-5)  # ties count as found
        cells = 1
        while True:
            found = self._search(queries, count, cells)
            recall = float((found.squares <= farthest).double().mean())
            if recall >= how.recall or cells >= len(self._centres):
                return cells, recall
            cells = min(ceil(how.growth * cells), len(self._centres))


def _cell_centres(rows: Tensor, count: int, how: CellSettings) -> Tensor:
    """Return the centres of cells, by k-means of a sample."""
    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(len(rows), generator=generator)[: how.per_cell * count]
    sample = rows[some.to(rows.device)]
    centres = sample[:count].clone()
    for _ in range(how.rounds):
        cells = _nearest_of(sample, centres)
        sizes = cells.bincount(minlength=count)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, cells, sample)
        centres = torch.where(sizes > 0, sums / sizes.clamp(min=1), centres)
    return centres


def _nearest_of(rows: Tensor, centres: Tensor, distances: int = 1 << 24) -> Tensor:
    """Return the number of the nearest centre of each row, [n]."""
    halves = centres.square().sum(1) / 2
    blocks = rows.split(max(1, distances // len(centres)))
    return torch.cat([(block @ centres.T - halves).argmax(1) for block in blocks])


def _nearest_centres(centres: Tensor) -> Tensor:
    """For each centre the numbers of all centres, nearest first."""
    squares = torch.cdist(centres, centres)
    return squares.fill_diagonal_(-1).argsort(dim=1)
