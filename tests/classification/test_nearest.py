"""The nearest of all rows, against distances in float64."""

import pytest
import torch

from whatwhere.classification.nearest import Nearest, nearest_of_all


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("distances", [1, 200, 10_000_000])
def test_the_nearest_of_all_are_found(distances: int) -> None:
    x, queries = rows(70), rows(9, seed=1)
    wanted = torch.cdist(queries.double(), x.double()).square().topk(5, largest=False)
    found = nearest_of_all(queries, x, x.square().sum(1), 5, distances)
    assert torch.equal(found.rows, wanted.indices)
    torch.testing.assert_close(found.squares.double(), wanted.values, rtol=1e-4, atol=1e-6)


def test_rows_that_are_very_far_away_are_compared_in_float64() -> None:
    x = 1e25 * rows(30)
    found = nearest_of_all(x[:4], x, x.square().sum(1), 2, 1 << 20)
    wanted = torch.cdist(x[:4].double(), x.double()).topk(2, largest=False).indices
    assert torch.equal(found.rows, wanted)


def test_without_takes_each_row_itself_away() -> None:
    nearest = Nearest(torch.tensor([[0.0, 1, 2], [0, 0, 3]]), torch.tensor([[4, 5, 6], [7, 8, 9]]))
    left = nearest.without(torch.tensor([5, 1]))  # the second is not among them
    assert left.rows.tolist() == [[4, 6], [7, 8]]
    assert left.squares.tolist() == [[0, 2], [0, 0]]
