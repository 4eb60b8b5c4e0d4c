"""Long curves, such as cracks, scratches and hairs, that no single place shows.

Only dark curves are looked for: bright ones told no set apart better, and each further kind of
evidence costs a little elsewhere (`docs/results/trials.md`).

A crack in rough asphalt is hardly darker than the grain around it at any pixel, but it is darker
along its whole length. Responses to short strokes in every direction are therefore added up along
curves: a curve of length 2 L is one of length L in a direction, continued by the best one of
the same or of a neighbouring direction,

    S_2L(x, k) = S_L(x - L/2 u_k, k) + max over |j - k| ≤ 1 of S_L(x + L/2 u_j, j)

so that each doubling costs four additions a pixel and direction, and a curve may bend.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.anomaly.squares import max_pool
from whatwhere.spec.checks import Checked, Count, Positive, Within


@dataclass(frozen=True, kw_only=True)
class CurveSpec(Checked):
    """Settings of curves, in pixels of the finest scale.

    Parameters
    ----------
    directions
        of strokes, over half a turn
    width
        deviation of a stroke's profile
    piece
        length of a stroke
    doublings
        of that length. Curves of 48 pixels tell roads with cracks apart better than shorter ones do
    """

    directions: Annotated[int, Within(2)] = 12
    width: Positive = 1.0
    piece: Count = 6
    doublings: Count = 3

    @property
    def reach(self) -> int:
        """How far from its middle a curve goes, in pixels of the finest scale."""
        return self.piece * 2**self.doublings // 2


CURVES = CurveSpec()
_QUIET = 1e-6  # of a deviation: a picture without any structure has none


def strokes(side: int, spec: CurveSpec = CURVES) -> Tensor:
    """Return features of short bright strokes [K, side, side], one for each direction."""
    at = torch.arange(side, dtype=torch.float64) - side // 2
    down, across = at[:, None], at
    found = []
    for k in range(spec.directions):
        dy, dx = _unit(k, spec)
        along = across * dx + down * dy
        beside = down * dx - across * dy
        profile = torch.exp(-beside.square() / (2 * spec.width**2))
        found.append(profile * torch.exp(-((along / (0.75 * spec.piece)) ** 4)))
    return torch.stack(found).float()


def largest_sums(responses: Tensor, side: int, spec: CurveSpec = CURVES) -> Tensor:
    """Return the largest sum of responses [K, h, w] along the curves around the places of every
    square of `side` places, [K, h / side, w / side], for each direction in the middle.

    The places of curves that are as long as four squares need not be so fine: from then on, the
    largest of 2 x 2 places stands for them, as long as squares have as many.
    """
    sums = responses
    length = spec.piece
    for number in range(spec.doublings):
        if number and side % 2 == 0:
            sums = max_pool(sums, 2)
            side //= 2
            length //= 2
        sums = torch.stack([_doubled(sums, k, length, spec) for k in range(len(sums))])
        length *= 2
    return max_pool(sums, side)


def in_own_units(sums: Tensor, known: Tensor) -> Tensor:
    """Return the sums of a picture [K, rows, columns] in units of the same picture, [rows,
    columns]: how many deviations they exceed the mean of their direction, for the best direction.
    So what a surface has everywhere, such as lines of grinding, does not count.

    Parameters
    ----------
    known
        [rows, columns]: the places that count
    """
    inside = sums[:, known]
    mean, deviation = inside.mean(1), inside.std(1, correction=0).clamp_min(_QUIET)
    return ((sums - mean[:, None, None]) / deviation[:, None, None]).amax(0)


def _doubled(sums: Tensor, k: int, length: int, spec: CurveSpec) -> Tensor:
    """Return the sums of curves twice as long in direction k, [h, w]."""
    dy, dx = _unit(k, spec)
    half = length / 2
    before = _moved(sums[k], round(-half * dy), round(-half * dx))
    after = None
    for j in (k - 1, k, k + 1):
        dy, dx = _unit(j, spec)
        # direction -1 is the last one, seen from its other end
        bent = _moved(sums[j % len(sums)], round(half * dy), round(half * dx))
        after = bent if after is None else torch.maximum(after, bent)
    assert after is not None
    return before + after


def _unit(k: int, spec: CurveSpec) -> tuple[float, float]:
    """Return the step down and the step across of direction k."""
    angle = math.pi * k / spec.directions
    return math.sin(angle), math.cos(angle)


def _moved(values: Tensor, down: int, across: int) -> Tensor:
    """Return the values [h, w] that are so many rows below and columns to the right of every
    place; 0 outside."""
    height, width = values.shape
    if abs(down) >= height or abs(across) >= width:
        return torch.zeros_like(values)
    inside = values[max(down, 0) : height + min(down, 0), max(across, 0) : width + min(across, 0)]
    return F.pad(inside, [max(-across, 0), max(across, 0), max(-down, 0), max(down, 0)])
