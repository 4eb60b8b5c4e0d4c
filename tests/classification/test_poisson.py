"""Poisson learning against a dense solve, graphs in parts, regions and the shares of classes."""

import pytest
import torch
from torch import Tensor

from whatwhere.classification.neighbour_graph import connected_parts, symmetric_graph
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.classification.poisson import (
    POISSON,
    grow_regions,
    poisson_learning,
    share_offsets,
    solve_poisson,
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
    wanted = torch.linalg.solve(D - W + POISSON.tau * D, F)
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
    walks = grow_regions(graph, connected_parts(graph), u, rows, labels, even(2))
    assert (walks[80:] == 0).all()
    torch.testing.assert_close(walks[:80].sum(1), torch.ones(80, dtype=torch.float64))


def test_regions_end_where_neighbours_are_few() -> None:
    """A potential that is wrong at every tenth row is smoothed away."""
    graph = graph_of(clouds(0.0, 6.0), k=8)
    truth = torch.arange(80) // 40
    wrong = torch.where(torch.arange(80) % 10 == 3, 1 - truth, truth)
    u = torch.nn.functional.one_hot(wrong, 2).double() + 0.1
    walks = grow_regions(
        graph, connected_parts(graph), u, torch.tensor([0, 41]), torch.tensor([0, 1]), even(2)
    )
    assert torch.equal(walks.argmax(1), truth)


def test_offsets_bring_shares_near_the_prior_and_stay_zero_if_they_are() -> None:
    scores = torch.rand(1000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (share_offsets(scores, even(4)) == 0).all()
    unbounded = torch.zeros(4, dtype=torch.float64)
    assert (share_offsets(scores + torch.tensor([2.0, 0, 0, 0]), unbounded) == 0).all()
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
    free = grow_regions(graph, connected_parts(graph), u, rows, labels, 0 * even(2)).argmax(1)
    fair = grow_regions(graph, connected_parts(graph), u, rows, labels, even(2)).argmax(1)
    assert float((fair != truth).double().mean()) < float((free != truth).double().mean())
    assert 0.35 < float(fair.double().mean()) < 0.65
