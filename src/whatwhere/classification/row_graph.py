"""Rows, their nearest neighbours, and the graph that labels spread along."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from whatwhere.classification.label_potentials import LabelPotentials
from whatwhere.classification.neighbour_graph import (
    connected_parts,
    degrees,
    scaled_graph,
    sum_of_graphs,
    symmetric_graph,
)
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.progress import no_op


@dataclass(frozen=True)
class RowGraph:
    """Rows [N, d], each connected to its nearest neighbours.

    Parameters
    ----------
    neighbours
        the rows
    graph
        the weights, a sparse CSR matrix [N, N]
    distances
        the mean squared distance of every row from its neighbours, [N]
    """

    neighbours: Neighbours
    graph: Tensor
    distances: Tensor

    @classmethod
    def of(
        cls, neighbours: Neighbours, count: int, progress: Callable[[int], object] = no_op
    ) -> "RowGraph":
        """Connect every row to `count` others; the weight of a pair falls with its distance.

        Parameters
        ----------
        progress
            called with the number of rows that were just connected
        """
        nearest = neighbours.others(min(count, len(neighbours) - 1), progress)
        graph = symmetric_graph(neighbour_weights(nearest.squares), nearest.rows)
        return cls(neighbours, graph, nearest.squares.double().mean(1))

    @cached_property
    def parts(self) -> Tensor:
        """The number of the connected part of the graph that every row is in, [N]."""
        return connected_parts(self.graph)

    @cached_property
    def potentials(self) -> LabelPotentials:
        """Potentials of labels on the graph."""
        return LabelPotentials(self.graph)

    @cached_property
    def even_graph(self) -> Tensor:
        """The graph D^-½ W D^-½, in which rows with many or near neighbours count like others, so
        that graphs of several descriptions can be added."""
        return scaled_graph(self.graph, 1 / degrees(self.graph).sqrt())


def joined_graph(
    parts: list[RowGraph], graphs: list[Tensor], weights: list[float], rows: Tensor
) -> RowGraph:
    """Add the graphs of several descriptions of the same rows, with weights that add up to 1.

    Parameters
    ----------
    graphs
        the graph of each description, as it is added
    rows
        the joined rows [N, Σ d], whose squared distances are weighted sums of the descriptions'
    """
    used = [number for number, weight in enumerate(weights) if weight > 0]
    graph = sum_of_graphs([graphs[number] for number in used], [weights[number] for number in used])
    distances = torch.stack([weights[number] * parts[number].distances for number in used]).sum(0)
    return RowGraph(Neighbours(rows, parts[0].neighbours.device), graph, distances)
