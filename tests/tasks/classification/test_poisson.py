"""Poisson learning against a dense solve, graphs in parts, regions and the shares of classes."""

import sys
import types

import numpy as np
import pytest
import torch
from torch import Tensor

from whatwhere.errors import MissingExtra
from whatwhere.tasks.classification import poisson as neighbours
from whatwhere.tasks.classification.poisson import (
    TAU,
    Neighbours,
    connected_parts,
    grow_regions,
    neighbour_weights,
    poisson_learning,
    share_offsets,
    solve_poisson,
    symmetric_graph,
)


def graph_of(x: Tensor, k: int = 5) -> Tensor:
    squares, found = Neighbours(x).others(k)
    return symmetric_graph(neighbour_weights(squares), found)


def clouds(*centres: float, count: int = 40, seed: int = 0) -> Tensor:
    noise = torch.randn(len(centres) * count, 3, generator=torch.Generator().manual_seed(seed))
    return noise + torch.tensor(centres).repeat_interleave(count)[:, None]


def even(classes: int) -> Tensor:
    return torch.full((classes,), 1 / classes, dtype=torch.float64)


@pytest.mark.parametrize("centres", [(0.0, 2.0), (0.0, 100.0)])  # one graph, and two parts
def test_potentials_solve_poissons_equation(centres: tuple[float, ...]) -> None:
    graph = graph_of(clouds(*centres))
    W = graph.to_dense()
    D = torch.diag(W.sum(1))
    rows, labels = torch.tensor([0, 3, 50, 60, 70]), torch.tensor([0, 1, 2, 2, 1])
    y = torch.nn.functional.one_hot(labels, 3).double()
    F = torch.zeros(80, 3, dtype=torch.float64)
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    F[rows] = (y - y.mean(0)) * (shares / y.mean(0))
    wanted = torch.linalg.solve(D - W + TAU * D, F)
    found = poisson_learning(graph, rows, labels, shares)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))


def test_columns_are_solved_independently() -> None:
    graph = graph_of(clouds(0.0, 1.0))
    source = torch.zeros(80, 3, dtype=torch.float64)
    source[0, 0], source[70, 0], source[5, 1], source[6, 1] = 1, -1, 1e-6, -1e-6
    together = solve_poisson(graph, source)
    torch.testing.assert_close(
        together[:, :1], solve_poisson(graph, source[:, :1]), rtol=1e-5, atol=1e-8
    )
    assert (together[:, 2] == 0).all()


def test_in_a_part_with_labels_of_one_class_that_class_wins() -> None:
    graph = graph_of(clouds(0.0, 100.0))
    u = poisson_learning(graph, torch.tensor([0, 41]), torch.tensor([0, 1]), even(2))
    assert u.argmax(1).tolist() == [0] * 40 + [1] * 40


def test_a_part_without_labels_has_no_potential() -> None:
    graph = graph_of(clouds(0.0, 1.0, 100.0))
    rows, labels = torch.tensor([0, 41]), torch.tensor([0, 1])
    u = poisson_learning(graph, rows, labels, even(2))
    assert (u[80:] == 0).all()
    walks = grow_regions(graph, connected_parts(graph), u, rows, labels, None)
    assert (walks[80:] == 0).all()
    torch.testing.assert_close(walks[:80].sum(1), torch.ones(80, dtype=torch.float64))


def test_regions_end_where_neighbours_are_few() -> None:
    """A potential that is wrong at every tenth row is smoothed away."""
    graph = graph_of(clouds(0.0, 6.0), k=8)
    truth = torch.arange(80) // 40
    wrong = torch.where(torch.arange(80) % 10 == 3, 1 - truth, truth)
    u = torch.nn.functional.one_hot(wrong, 2).double() + 0.1
    walks = grow_regions(
        graph, connected_parts(graph), u, torch.tensor([0, 41]), torch.tensor([0, 1]), None
    )
    assert torch.equal(walks.argmax(1), truth)


def test_offsets_bring_shares_near_the_prior_and_stay_zero_if_they_are() -> None:
    scores = torch.rand(1000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (share_offsets(scores, even(4)) == 0).all()
    assert (share_offsets(scores + torch.tensor([2.0, 0, 0, 0]), None) == 0).all()
    biased = scores + torch.tensor([0.9, 0.0, 0.0, -0.3])
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    counts = (biased + share_offsets(biased, prior)).argmax(1).bincount(minlength=4) / 1000
    assert ((counts / prior).log().abs() < 0.3).all(), counts


def test_known_shares_keep_a_class_that_its_label_would_lose() -> None:
    """The only label of class 1 is at the border: without shares its region shrinks."""
    x = clouds(0.0, 2.5, count=100)
    graph, truth = graph_of(x, k=8), torch.arange(200) // 100
    rows, labels = torch.tensor([0, 100 + int((x[100:].sum(1)).argmin())]), torch.tensor([0, 1])
    u = poisson_learning(graph, rows, labels, even(2))
    u[:, 0] += 2 * u.abs().max() * (torch.arange(200) < 180)  # class 0 takes nearly all
    free = grow_regions(graph, connected_parts(graph), u, rows, labels, None).argmax(1)
    fair = grow_regions(graph, connected_parts(graph), u, rows, labels, even(2)).argmax(1)
    assert float((fair != truth).double().mean()) < float((free != truth).double().mean())
    assert 0.35 < float(fair.double().mean()) < 0.65


# Exact neighbours against all distances, their graph against a dense one, copies of rows, many rows


def rows(count: int, columns: int = 6, seed: int = 0) -> torch.Tensor:
    # far from 0
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(seed)) + 100


@pytest.mark.parametrize("block", [1, 10_000_000])
def test_neighbours_are_the_nearest_of_all(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "DISTANCES", block)
    x, queries = rows(70), rows(9, seed=1)
    distances = torch.cdist(queries.double(), x.double()).square()
    squares, found = Neighbours(x).nearest(queries, 5)
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


def test_the_graph_has_the_larger_weight_of_both_directions() -> None:
    x = rows(50)
    squares, found = Neighbours(x).others(4)
    dense = torch.zeros(50, 50, dtype=torch.float64)
    dense.scatter_(1, found, neighbour_weights(squares).double())
    graph = symmetric_graph(neighbour_weights(squares), found)
    torch.testing.assert_close(graph.to_dense(), torch.maximum(dense, dense.T), rtol=0, atol=0)


def test_many_rows_need_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "EXACT_ROWS", 10)
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(MissingExtra, match="neighbours"):
        Neighbours(rows(11))


def test_many_rows_take_the_approximate_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is asked for what the exact search returns, in the units that PyNNDescent has."""

    class Index:
        def __init__(self, x: np.ndarray, n_neighbors: int, random_state: int) -> None:
            self.x = torch.from_numpy(x)

        def query(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
            nearest = torch.cdist(torch.from_numpy(queries), self.x).topk(k, largest=False)
            return nearest.indices.numpy().astype(np.int32), nearest.values.numpy()

    x, queries = rows(60), rows(5, seed=1)
    wanted = [Neighbours(x).nearest(queries, 4), Neighbours(x).others(6)]
    monkeypatch.setattr(neighbours, "EXACT_ROWS", 10)
    monkeypatch.setattr(Neighbours, "_nearest_of_block", None)
    monkeypatch.setitem(sys.modules, "pynndescent", types.SimpleNamespace(NNDescent=Index))
    found = [Neighbours(x).nearest(queries, 4), Neighbours(x).others(6)]
    for (squares, numbers), (exact_squares, exact_numbers) in zip(found, wanted, strict=True):
        assert torch.equal(numbers, exact_numbers)
        torch.testing.assert_close(squares, exact_squares, rtol=1e-3, atol=1e-4)
