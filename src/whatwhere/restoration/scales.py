"""Restore a picture at half its size, and mix this with the picture restored at full size.

At half the size, noise has half the standard deviation and the denoiser sees twice as far, so
smooth parts come out better; detail that is finer is lost. Four grids of 2 × 2 pixels, a pixel
apart, are averaged.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.restoration.correlation import half_size

Small = Callable[[Tensor, int], Tensor]
"""A function of a small plane and the number of its grid, 0 to 3, that restores it."""


@dataclass(frozen=True, kw_only=True)
class ScaleSettings:
    """Settings of the mean of two scales.

    Parameters
    ----------
    lost
        variance of the detail that half the size loses, in variances of the noise, at which the
        smaller size has a third of the weight; without any detail it has half of it. Chosen on
        photographs with white noise and with that of photons
    around
        pixels of half the size, from the middle of a square in which this is measured
    least
        largest weight below which the smaller size is left out
    """

    lost: float = 0.004
    around: int = 7
    least: float = 0.02


_DEFAULT = ScaleSettings()


def at_half_size(restore: Small, plane: Tensor) -> Tensor:
    """Return a plane [H, W] restored at half its size."""
    height, width = plane.shape
    total = torch.zeros_like(plane)
    for number in range(4):
        down, right = divmod(number, 2)
        sides = (right, (width + right) % 2, down, (height + down) % 2)
        small = half_size(F.pad(plane[None, None], sides, mode="replicate")[0, 0])
        total += _enlarge(restore(small, number))[down : down + height, right : right + width]
    return total / 4


def mix(
    fine: Tensor, coarse: Callable[[], Tensor], noise: float, settings: ScaleSettings = _DEFAULT
) -> Tensor:
    """Return the mean of a plane [H, W] restored at full size and, where it has no finer detail, at
    half the size.

    Parameters
    ----------
    coarse
        makes the second one
    noise
        standard deviation of the noise that was removed
    """
    height, width = (side // 2 * 2 for side in fine.shape)
    if min(height, width) == 0:
        return fine
    whole = fine[:height, :width]
    lost = half_size((whole - _enlarge(half_size(whole))).square()) / noise**2
    side = 2 * settings.around + 1
    lost = F.avg_pool2d(lost[None, None], side, 1, settings.around, count_include_pad=False)
    weight = 1 / (2 + lost / settings.lost)
    if float(weight.max()) < settings.least:
        return fine
    large = F.interpolate(weight, fine.shape, mode="nearest")[0, 0]
    return fine.lerp(coarse(), large)


def _enlarge(plane: Tensor) -> Tensor:
    """Return a plane [H, W] with twice as many rows and columns."""
    larger = F.interpolate(plane[None, None], scale_factor=2, mode="bicubic", align_corners=False)
    return larger[0, 0]
