"""Exact neighbours against all distances, copies of rows."""

import numpy as np
import pytest
import torch

from whatwhere.classification.neighbours import Neighbours, neighbour_weights


def rows(count: int, columns: int = 6, seed: int = 0) -> torch.Tensor:
    # far from 0
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(seed)) + 100


@pytest.mark.parametrize("block", [1, 10_000_000])
def test_neighbours_are_the_nearest_of_all(block: int) -> None:
    x, queries = rows(70), rows(9, seed=1)
    distances = torch.cdist(queries.double(), x.double()).square()
    squares, found = Neighbours(x, distances=block).nearest(queries, 5)
    wanted = distances.topk(5, largest=False)
    assert torch.equal(found, wanted.indices)
    torch.testing.assert_close(squares.double(), wanted.values, rtol=1e-4, atol=1e-6)


def test_a_row_is_not_its_own_neighbour() -> None:
    x = rows(40)
    distances = torch.cdist(x.double(), x.double()).square().fill_diagonal_(torch.inf)
    _, found = Neighbours(x).others(7)
    assert torch.equal(found, distances.topk(7, largest=False).indices)


def test_rows_with_more_copies_than_neighbours() -> None:
    x = torch.cat([rows(1).expand(20, 6), rows(5, seed=1)])
    squares, found = Neighbours(x).others(4)
    assert found.shape == (25, 4)
    assert not (found == torch.arange(25)[:, None]).any()
    assert (found[:20] < 20).all()
    assert (squares[:20] == 0).all()
    assert (neighbour_weights(squares)[:20] == 1).all()


def test_close_rows_far_from_zero_keep_their_order() -> None:
    x = torch.zeros(6, 2, dtype=torch.float64) + 1000
    x[:, 0] += torch.tensor([0, 1e-3, 3e-3, 6e-3, 10e-3, 50.0])
    squares, found = Neighbours(x).others(2)
    assert found[1].tolist() == [0, 2]
    torch.testing.assert_close(squares[1], torch.tensor([1e-6, 4e-6]), rtol=0.02, atol=0)


def test_weights_fall_from_one_to_exp_minus_four() -> None:
    weights = neighbour_weights(torch.tensor([[0.0, 1.0, 4.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(
        weights, torch.tensor([[1.0, np.exp(-1), np.exp(-4)], [1.0, 1.0, 1.0]]).float()
    )


def test_many_rows_are_centred_in_blocks_as_at_once() -> None:
    x = rows(3000, 6000).half().float()
    wanted = (x.double() - x.double().mean(0)).float()
    torch.testing.assert_close(Neighbours(x).rows, wanted)
