"""How far all views of two pictures find them alike.

Neighbours of one view may look different to all others: a label that travels along them comes to
another class, and few such neighbours are enough for that. The weight of a pair of neighbours is
therefore multiplied by a power of its support. The support of two rows is the mean over the views
of the share of all pairs that are less alike than these two: 1 if no view knows a pair that is more
alike, about a half if the other views say nothing about the two. A share counts the same in every
view, however its distances are spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whatwhere.spec.checks import Checked, Count, NonNegative


@dataclass(frozen=True)
class SupportSettings(Checked):
    """How support is measured, and what it counts.

    Parameters
    ----------
    power
        of the support, which multiplies the weight of a pair. With 2, steel surfaces have as few
        errors as by their best view, and other sets as many as without support or fewer
        (benchmarks/labels/results/weights_again.txt)
    pairs
        random pairs of rows that stand for all pairs
    block
        pairs that are compared at a time
    """

    power: NonNegative = 2.0
    pairs: Count = 20_000
    block: Count = 1 << 12


_SETTINGS = SupportSettings()


class ViewSupport:
    """The support of pairs of rows by several views.

    Parameters
    ----------
    views
        the rows of each view, of unit length, [N, d] each
    """

    def __init__(self, views: Sequence[Tensor], how: SupportSettings = _SETTINGS) -> None:
        self.views = views
        self.how = how
        generator = torch.Generator().manual_seed(0)
        count = len(views[0])
        first = torch.randint(count, (how.pairs,), generator=generator)
        others = torch.randint(1, max(2, count), (how.pairs,), generator=generator)
        first, second = (part.to(views[0].device) for part in (first, (first + others) % count))
        self._usual = [_likeness(rows, first, second).sort().values for rows in views]

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the support of pairs of rows [E] and [E], to the power of the settings, [E]."""
        blocks = zip(first.split(self.how.block), second.split(self.how.block), strict=True)
        parts = [self._support(one, other) for one, other in blocks]
        return torch.cat([first.new_zeros(0, dtype=torch.float32), *parts]) ** self.how.power

    def _support(self, first: Tensor, second: Tensor) -> Tensor:
        total = torch.zeros(len(first), device=first.device)
        for rows, usual in zip(self.views, self._usual, strict=True):
            total += torch.searchsorted(usual, _likeness(rows, first, second)) / len(usual)
        return total / len(self.views)


def _likeness(rows: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine of pairs of rows of unit length, [E]."""
    return (rows[first] * rows[second]).sum(1)
