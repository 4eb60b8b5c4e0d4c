"""A label that may lie among the rows of another class, told from the borders of the classes.

A label may be of a picture that looks like another class: a nine among ones. Its class then takes a
part of the others, and its own rows go to a neighbour. With one label a class, no other label says
so, but the graph does: borders cross many of its edges, and regions of about even sizes
(`grow_regions`) have far fewer. Then even sizes are better in 14 of 18 cases, by 5 points on
average (benchmarks/labels/results/even_classes.json), so they are taken, and this is said: unequal
classes can look the same.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.poisson import grow_regions, label_sources
from whatwhere.classification.row_graph import RowGraph
from whatwhere.spec.checks import Checked, Positive


@dataclass(frozen=True)
class EvenSettings(Checked):
    """When even classes have far fewer borders.

    Parameters
    ----------
    share
        less than this share of the borders. On 10,000 digits with one label a class, it finds the
        one of ten draws in which two classes merge (benchmarks/labels/results/even_classes.json)
    fewer
        and by at least so much fewer, in shares of the edges of a class: classes that are well
        apart have next to no borders, and a share of those says nothing
    most
        and at most this share of the edges of an even class leads out of it, on average: white
        cells, whose kinds are unequal, have 0.09 to 0.13 in the three draws in which even classes
        would else be taken, and lose 4 to 11 points by them
    """

    share: Positive = 0.65
    fewer: Positive = 0.05
    most: Positive = 0.07


_SETTINGS = EvenSettings()


def even_regions(
    graph: RowGraph, rows: Tensor, labels: Tensor, found: Tensor, how: EvenSettings = _SETTINGS
) -> Tensor | None:
    """Return how many of the walks from each row end in classes of about even sizes, [N, K], if
    these have far fewer borders than the found classes; otherwise None.

    Parameters
    ----------
    rows
        rows with a label, one of each class
    labels
        their classes
    found
        the class of every row, [N]
    """
    classes = len(labels)
    even = torch.full((classes,), 1 / classes, dtype=torch.float64, device=found.device)
    u = graph.potentials.system.solve(label_sources(graph.graph, rows, labels, even))
    walks = grow_regions(graph.graph, graph.parts, u, rows, labels, even)
    of_even = borders(graph.graph, walks.argmax(1), classes)
    of_found = borders(graph.graph, found, classes)
    limits = how.share * of_found, of_found - how.fewer, how.most * classes
    has_far_fewer = of_even < min(limits)
    return walks if has_far_fewer else None


def borders(graph: Tensor, found: Tensor, classes: int) -> float:
    """Return the share of the weight of a class's edges that leads out of it, summed over classes.

    Parameters
    ----------
    found
        the class of every row, [N]
    """
    members = F.one_hot(found, classes).to(graph.dtype)
    within = members.T @ (graph @ members)
    total = within.sum(1).clamp(min=torch.finfo(graph.dtype).tiny)
    return float((1 - within.diagonal() / total).sum())
