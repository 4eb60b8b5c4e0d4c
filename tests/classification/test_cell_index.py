"""Neighbours among many rows, against all distances."""

import pytest
import torch
from torch import Tensor

from whatwhere.classification.cell_index import CellIndex, CellSettings
from whatwhere.classification.neighbours import Neighbours

SETTINGS = CellSettings(fewest=1000, cell=50, sample=100)


def clusters(count: int = 3000, columns: int = 8) -> Tensor:
    """Rows around 20 centres."""
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(20, columns, generator=generator)
    return centres[torch.arange(count) % 20] + torch.randn(count, columns, generator=generator)


def found_share(x: Tensor, found: Tensor) -> float:
    """The share of the true neighbours that were found."""
    distances = torch.cdist(x, x).fill_diagonal_(torch.inf)
    true = distances.topk(found.shape[1], largest=False).indices
    return float((true[:, :, None] == found[:, None]).any(2).double().mean())


@pytest.mark.parametrize("recall", [0.8, 0.99])
def test_as_many_neighbours_are_found_as_wanted(recall: float) -> None:
    x = clusters()
    cells = CellSettings(fewest=1000, cell=50, sample=100, recall=recall)
    neighbours = Neighbours(x, cells=cells)
    found = neighbours.others(10)
    share = found_share(x, found.rows)
    assert neighbours.index is not None
    assert share > recall - 0.04
    assert share == pytest.approx(neighbours.index.recall, abs=0.04)
    wanted = (x[:, None] - x[found.rows]).square().sum(2)
    torch.testing.assert_close(found.squares, wanted, rtol=1e-3, atol=1e-4)
    assert bool((found.squares.diff(dim=1) >= 0).all())


def test_few_rows_are_compared_with_all() -> None:
    assert Neighbours(clusters(900), cells=SETTINGS).index is None


def test_only_near_cells_are_compared() -> None:
    x = clusters()
    index = CellIndex(x, x.square().sum(1), 1 << 20, SETTINGS)
    assert index.cells < len(x) / SETTINGS.cell / 2


def test_progress_counts_every_query() -> None:
    done: list[int] = []
    Neighbours(clusters(), cells=SETTINGS).others(5, done.append)
    assert sum(done) == 3000


def test_new_rows_find_their_neighbours_too() -> None:
    x = clusters()
    queries = x[:50] + 0.01
    found = Neighbours(x, cells=SETTINGS).nearest(queries, 3)
    assert (found.rows[:, 0] == torch.arange(50)).double().mean() > 0.9


def test_copies_of_a_row_fill_their_cell() -> None:
    x = torch.cat([torch.zeros(1500, 4), clusters(1500, 4)])
    found = Neighbours(x, cells=SETTINGS).others(5)
    assert (found.squares[:1500] == 0).all()


def test_more_neighbours_than_a_cell_has() -> None:
    found = Neighbours(clusters(), cells=SETTINGS).others(400)
    assert found.rows.shape == (3000, 400)
    assert all(len(row.unique()) == 400 for row in found.rows[::500])
