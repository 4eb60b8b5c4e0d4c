"""The graph of neighbours against a dense one, and its parts."""

import torch

from whatwhere.classification.neighbour_graph import (
    connected_parts,
    degrees,
    product_of,
    symmetric_graph,
    weighted_pairs,
)
from whatwhere.classification.neighbours import Neighbours, neighbour_weights


def rows(count: int) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(0))


def test_the_graph_has_the_larger_weight_of_both_directions() -> None:
    x = rows(50)
    squares, found = Neighbours(x).others(4)
    dense = torch.zeros(50, 50, dtype=torch.float64)
    dense.scatter_(1, found, neighbour_weights(squares).double())
    graph = symmetric_graph(neighbour_weights(squares), found)
    torch.testing.assert_close(graph.to_dense(), torch.maximum(dense, dense.T), rtol=0, atol=0)


def test_degrees_and_products_are_those_of_the_dense_matrix() -> None:
    squares, found = Neighbours(rows(30)).others(3)
    graph = symmetric_graph(neighbour_weights(squares), found)
    x = torch.rand(30, 2, dtype=torch.float64)
    torch.testing.assert_close(degrees(graph), graph.to_dense().sum(1))
    torch.testing.assert_close(product_of(graph)(x), graph.to_dense() @ x)


def test_rows_that_are_far_apart_are_in_different_parts() -> None:
    x = torch.cat([rows(20), rows(20) + 1000])
    squares, found = Neighbours(x).others(5)
    parts = connected_parts(symmetric_graph(neighbour_weights(squares), found))
    assert not set(parts[:20].tolist()) & set(parts[20:].tolist())


def test_weights_of_pairs_are_multiplied_in_both_directions() -> None:
    squares, found = Neighbours(rows(50)).others(4)
    graph = symmetric_graph(neighbour_weights(squares), found)
    factors = torch.rand(50, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    factors = factors + factors.T
    weighted = weighted_pairs(graph, lambda first, second: factors[first, second])
    torch.testing.assert_close(weighted.to_dense(), graph.to_dense() * factors)
