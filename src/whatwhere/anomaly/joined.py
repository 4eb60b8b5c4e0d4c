"""Scores of several sources of features as one, by ranks.

A score s becomes -log of the share of normal pictures above it, whatever its units; the mean over
sources is Fisher's way to join such shares. Between `LEVELS` and beyond them the curve is straight,
so that the least normal pictures keep their order and a map has values everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whatwhere.anomaly.evidence import LEAST

LEVELS = (0.1, 0.5, 0.75, 0.9)  # shares of normal pictures below the bends of the curve


@dataclass(frozen=True)
class Ranks:
    """The curve of one source: the scores [b] that `LEVELS` of the normal pictures stay below."""

    bends: Tensor

    @classmethod
    def of(cls, normal_scores: Tensor) -> "Ranks":
        quantiles = normal_scores.double().quantile(torch.tensor(LEVELS, dtype=torch.float64))
        # Equal scores would make the curve a step: it gets a spread of at least LEAST.
        widths = quantiles.diff().clamp_min(LEAST / len(LEVELS))
        return cls(torch.cat([quantiles[:1], quantiles[0] + widths.cumsum(0)]))

    def __call__(self, scores: Tensor) -> Tensor:
        """-log of the share of normal pictures above scores [...]."""
        heights = -torch.log1p(-torch.tensor(LEVELS, dtype=torch.float64))
        slopes = heights.diff() / self.bends.diff()
        part = torch.bucketize(scores.double(), self.bends[1:-1])
        return (heights[part] + slopes[part] * (scores - self.bends[part])).to(scores.dtype)


def join(ranks: Sequence[Ranks], scores: Sequence[Tensor]) -> Tensor:
    """The scores [...] of each source as one; those of a single source stay as they are."""
    if len(ranks) == 1:
        return scores[0]
    found = [curve(values) for curve, values in zip(ranks, scores, strict=True)]
    return torch.stack(found).mean(0)
