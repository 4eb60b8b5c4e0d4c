"""The stability of the classes on a graph, and the accuracy that can be expected because of it.

Classes are stable if most pictures would keep theirs if other pictures of the same classes, as the
graph sees them, had been labelled. This needs no held-out labels, so it can be measured from the
first label of each class on. Over views of eleven sets, it correlates with the accuracy by 0.87
(benchmarks/labels/views.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whatwhere.classification.calibration import HELD_OUT_TOLERANCE
from whatwhere.classification.poisson import label_sources, tau_for
from whatwhere.classification.row_graph import RowGraph
from whatwhere.spec.checks import Checked, Count, Positive


@dataclass(frozen=True)
class StabilitySettings(Checked):
    """How stability is measured, and what it says.

    Parameters
    ----------
    repeats
        how often other labels are drawn
    numbers
        potentials that are computed at most: of many rows fewer repeats say as much, and if one
        repeat has more, stability is not measured, so that a label is followed in a second
    enough
        held-out labels from which on it is no longer measured: they say more, and it takes time
    power
        the accuracy above chance is this power of the stability above chance. Between 1.5 and 2,
        probabilities of eleven sets are calibrated best with one label a class
    """

    repeats: Count = 4
    numbers: Count = 1 << 19
    enough: Count = 50
    power: Positive = 1.75

    def draws(self, rows: int, classes: int) -> int:
        """Return the number of repeats for this many rows and classes."""
        return min(self.repeats, self.numbers // (rows * classes))

    def is_measured(self, rows: int, classes: int, held_out: int) -> bool:
        """Tell whether stability is measured with this many rows, classes and held-out labels."""
        return held_out < self.enough and self.draws(rows, classes) > 0


def stability(
    graph: RowGraph, found: Tensor, classes: int, labels: int, how: StabilitySettings
) -> float:
    """Measure the share of rows that keep their class if other rows had been labelled.

    Parameters
    ----------
    found
        the classes of all rows by this graph, [N]
    labels
        number of labels
    """
    generator = torch.Generator().manual_seed(0)
    even = torch.full((classes,), 1 / classes, dtype=torch.float64, device=found.device)
    per_class = max(1, labels // classes)
    sources = []
    for _ in range(how.draws(len(found), classes)):
        order = torch.randperm(len(found), generator=generator).to(found.device)
        rows = torch.cat([order[found[order] == label][:per_class] for label in range(classes)])
        sources.append(label_sources(graph.graph, rows, found[rows], even))
    tau = tau_for(classes * per_class, len(found))
    u = graph.potentials.system.solve(torch.cat(sources, 1).float(), HELD_OUT_TOLERANCE, tau)
    again = torch.stack([part.argmax(1) for part in u.split(classes, 1)])
    return float((again == found).double().mean())


def expected_accuracy(stable: float, classes: int, how: StabilitySettings) -> float:
    """Return the accuracy to expect of classes of a stability."""
    chance = 1 / classes
    above = max(0.0, (stable - chance) / (1 - chance))
    return float(chance + (1 - chance) * above**how.power)
