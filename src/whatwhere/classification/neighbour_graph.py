"""The graph of nearest neighbours as a sparse matrix of weights."""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whatwhere.errors import MissingExtra

if TYPE_CHECKING:
    from scipy.sparse import csr_array

try:
    from scipy import sparse
    from scipy.sparse import csgraph
except ImportError:
    raise MissingExtra("scipy", "classification") from None


def symmetric_graph(weights: Tensor, found: Tensor) -> Tensor:
    """Return the graph as a sparse CSR matrix [N, N], float64: the weight of a pair is the larger
    of both directions.

    Parameters
    ----------
    weights, found
        of the neighbours of every row and their numbers, [N, k]
    """
    count, k = found.shape
    heads = torch.arange(0, count * k + 1, k)
    parts = (weights.double().flatten(), found.flatten(), heads)
    one_way = sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(count, count))
    both = one_way.maximum(one_way.T).tocsr()
    both.sort_indices()
    heads = torch.from_numpy(both.indptr).long()
    columns = torch.from_numpy(both.indices).long()
    return _csr_tensor(heads, columns, torch.from_numpy(both.data)).to(found.device)


def _csr_tensor(heads: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Make a square sparse matrix."""
    count = len(heads) - 1
    with warnings.catch_warnings():  # PyTorch calls its sparse tensors a beta version
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(heads, columns, values, (count, count))


def degrees(graph: Tensor) -> Tensor:
    """Return the sum of the weights of every row, [N]."""
    ones = graph.new_ones(graph.shape[0], 1, layout=torch.strided)
    return product_of(graph)(ones)[:, 0].clamp(min=1e-300)


def scaled_graph(graph: Tensor, factors: Tensor) -> Tensor:
    """Return the graph with every weight times the factors [N] of both of its rows."""
    heads = graph.crow_indices()
    columns = graph.col_indices()
    values = graph.values() * factors.repeat_interleave(heads.diff()) * factors[columns]
    return _csr_tensor(heads, columns, values)


def sum_of_graphs(graphs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted sum of graphs of the same rows."""
    first, *others = (
        weight * scipy_matrix(graph) for graph, weight in zip(graphs, weights, strict=True)
    )
    total = sum(others, first).tocsr()
    total.sort_indices()
    heads = torch.from_numpy(total.indptr).long()
    columns = torch.from_numpy(total.indices).long()
    return _csr_tensor(heads, columns, torch.from_numpy(total.data)).to(graphs[0].device)


def weighted_pairs(graph: Tensor, factor: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the graph with the weight of every pair times a factor.

    Parameters
    ----------
    factor
        from the numbers of the two rows of each pair, [E] and [E], to its factor, [E]
    """
    pairs = sparse.triu(scipy_matrix(graph), 1, format="coo")
    first, second = (torch.from_numpy(part).long() for part in pairs.coords)
    factors = factor(first.to(graph.device), second.to(graph.device))
    pairs.data *= factors.to(graph.dtype).cpu().numpy()
    both = (pairs + pairs.T).tocsr()
    both.sort_indices()
    heads = torch.from_numpy(both.indptr).long()
    columns = torch.from_numpy(both.indices).long()
    return _csr_tensor(heads, columns, torch.from_numpy(both.data)).to(graph.device)


def bandwidth_order(graph: Tensor) -> Tensor:
    """Make an order of the rows [N] in which neighbours are near each other (Cuthill and McKee)."""
    order = csgraph.reverse_cuthill_mckee(scipy_matrix(graph), symmetric_mode=True)
    return torch.from_numpy(order.copy()).long().to(graph.device)


def reordered(graph: Tensor, order: Tensor) -> Tensor:
    """Return the graph with its rows in another order."""
    numbers = order.cpu().numpy()
    matrix = scipy_matrix(graph)[numbers][:, numbers]
    matrix.sort_indices()  # before torch 2.11, a pickle of other tensors cannot be read
    heads = torch.from_numpy(matrix.indptr).long()
    columns = torch.from_numpy(matrix.indices).long()
    return _csr_tensor(heads, columns, torch.from_numpy(matrix.data)).to(graph.device)


def connected_parts(graph: Tensor) -> Tensor:
    """Return the number of the connected part of the graph that every row is in, [N]."""
    _, parts = csgraph.connected_components(scipy_matrix(graph), directed=False)
    return torch.from_numpy(parts).to(graph.device)


def scipy_matrix(graph: Tensor) -> "csr_array":
    """Return the same matrix for SciPy."""
    # indices of half the size make products faster
    index = torch.int32 if graph.values().numel() < 2**31 else torch.int64
    columns = graph.col_indices().to(index)
    heads = graph.crow_indices().to(index)
    parts = (graph.values(), columns, heads)
    return sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=tuple(graph.shape))


def product_of(graph: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the map x [N, K] → W x; on a CPU by SciPy, which takes a fifth of PyTorch's time."""
    if graph.device.type != "cpu":
        return lambda x: graph @ x
    matrix = scipy_matrix(graph)
    return lambda x: torch.from_numpy(matrix @ x.numpy())
