"""Noise that was blurred, so that neighbouring pixels share it: its deviations at several sizes,
and the width of the blur that explains them."""

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor


def half_size(plane: Tensor) -> Tensor:
    """Return the means of 2 × 2 pixels of a plane [H, W]."""
    return F.avg_pool2d(plane[None], 2)[0]


def white_sigma(width: float) -> float:
    """Return the standard deviation of the white noise that stands for noise of standard deviation
    1, blurred by this width.

    It is weaker in fine detail and stronger in coarse detail. This is the geometric mean of what
    pixels of half and of quarter size say, whose noise would be alike if it were white.
    """
    return _sum(width, 1) * _sum(width, 2)


def _covariance(width: float, distance: float) -> float:
    """The correlation along an axis of white noise that was blurred by a Gaussian."""
    return math.exp(-(distance**2) / (4 * width**2)) if width > 0 else float(distance == 0)


def difference(width: float, side: int) -> float:
    """The standard deviation, along an axis, of the Haar difference of 2 · side pixels of such
    noise."""
    return _deviation(width, [1.0] * side + [-1.0] * side)


def _sum(width: float, side: int) -> float:
    """The same for the sum of 2 · side pixels."""
    return _deviation(width, [1.0] * (2 * side))


@functools.cache
def _covariances(width: float, count: int) -> list[float]:
    return [_covariance(width, distance) for distance in range(count)]


def _deviation(width: float, signs: list[float]) -> float:
    """The standard deviation of a unit filter with these signs."""
    covariances = _covariances(width, len(signs))
    total = sum(
        a * b * covariances[abs(i - j)] for i, a in enumerate(signs) for j, b in enumerate(signs)
    )
    return math.sqrt(max(total, 0.0) / len(signs))


def width_of(coarser: float) -> float:
    """The width whose noise has this ratio of half size to full size, by bisection."""
    low, high = 0.2, 3.0
    for _ in range(40):
        middle = (low + high) / 2
        ratio = (difference(middle, 2) / difference(middle, 1)) ** 2
        low, high = (middle, high) if ratio < coarser else (low, middle)
    return low


def fit_width(deviations: Tensor) -> tuple[float, float]:
    """The width and the standard deviation of blurred noise whose Haar differences have these
    standard deviations at full, half and quarter size, [3]."""
    best = (math.inf, 0.0, 0.0)
    for step in range(6, 61):
        width = step / 20
        expected = torch.tensor([_detail(width, 2**k) for k in range(3)], dtype=torch.float64)
        ratio = (deviations / expected).log()
        misfit = float((ratio - ratio.mean()).square().sum())
        best = min(best, (misfit, width, math.exp(float(ratio.mean()))))
    return best[1:]


def _detail(width: float, side: int) -> float:
    """The root mean square of the Haar differences of all three directions of such noise."""
    low, high = _sum(width, side), difference(width, side)
    return math.sqrt((high**4 + 2 * (low * high) ** 2) / 3)
