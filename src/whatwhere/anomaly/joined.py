"""Scores and maps of several sources of features as one, by ranks.

A score s becomes -log of the share of normal pictures above it, whatever its units; the mean over
sources is Fisher's way to join such shares. In a map, the same is done with the share of the area
of normal pictures. Between the levels of a curve and beyond them the curve is straight, so that the
least normal pictures keep their order and a map has values everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whatwhere.anomaly.evidence import LEAST


@dataclass(frozen=True, kw_only=True)
class RankSpec:
    """Settings of ranks.

    Parameters
    ----------
    at_once
        values whose ranks are computed at a time, so that memory is bounded
    fewest
        pixels above the highest bend
    levels
        shares of normal pictures below the bends of the curve
    areas
        shares of the area of normal pictures there
    """

    at_once: int = 2**16
    fewest: int = 30
    levels: tuple[float, ...] = (0.1, 0.5, 0.75, 0.9)
    areas: tuple[float, ...] = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)


_RANKS = RankSpec()


@dataclass(frozen=True)
class Ranks:
    """The curve of one source: the scores [b] that these shares [b] of the normal pictures, or of
    their area, stay below."""

    bends: Tensor
    shares: Tensor

    @classmethod
    def of(cls, normal_scores: Tensor) -> "Ranks":
        """Return the curve of scores [n] of normal pictures."""
        return cls._with(normal_scores, _RANKS.levels)

    @classmethod
    def of_area(cls, normal_pixels: Tensor) -> "Ranks":
        """Return the curve of values [n] of maps of normal pictures."""
        count = len(normal_pixels)
        return cls._with(
            normal_pixels, [a for a in _RANKS.areas if a < 0.9 or (1 - a) * count >= _RANKS.fewest]
        )

    @classmethod
    def _with(cls, values: Tensor, levels: Sequence[float]) -> "Ranks":
        shares = torch.tensor(levels, dtype=torch.float64)
        order = values.double().sort().values
        at = shares * (len(order) - 1)
        low = order[at.floor().long()]
        quantiles = low + (order[at.ceil().long()] - low) * (at - at.floor())
        # Equal scores would make the curve a step: it gets a spread of at least LEAST.
        widths = quantiles.diff().clamp_min(LEAST / len(shares))
        return cls(torch.cat([quantiles[:1], quantiles[0] + widths.cumsum(0)]), shares)

    def __call__(self, scores: Tensor) -> Tensor:
        """-log of the share of normal pictures, or of their area, above scores [...]."""
        heights = -torch.log1p(-self.shares)
        slopes = heights.diff() / self.bends.diff()
        found = torch.empty_like(scores)
        # A part at a time, since float64 and the numbers of parts need many times the memory.
        parts = zip(
            found.view(-1).split(_RANKS.at_once),
            scores.flatten().split(_RANKS.at_once),
            strict=True,
        )
        for out, values in parts:
            part = torch.bucketize(values.double(), self.bends[1:-1])
            out.copy_(heights[part] + slopes[part] * (values - self.bends[part]))
        return found


def join(ranks: Sequence[Ranks], scores: Sequence[Tensor]) -> Tensor:
    """Return the scores [...] of each source as one; those of a single source stay as they are."""
    if len(ranks) == 1:
        return scores[0]
    found = [curve(values) for curve, values in zip(ranks, scores, strict=True)]
    return torch.stack(found).mean(0)
