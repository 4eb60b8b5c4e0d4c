"""Patterns: how strong waves of each direction and size are in a picture, and which of them occur
together, in brightness and in colours."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.spec.checks import Count, Positive, Within
from whatwhere.views.colour import opponent
from whatwhere.views.view import MapView


@dataclass(frozen=True)
class Patterns(MapView):
    """Statistics of the strengths of waves (Gabor filters) at several scales.

    A row has the logarithms of the means and of the deviations of the strengths, and the
    correlations between strengths of one scale: a checked cloth and a striped one may have the same
    means, but only in the checked one are both directions strong at the same places.

    Parameters
    ----------
    cells
        parts of the height and of the width, for means and deviations
    directions
        directions of the waves
    scales
        how often the picture is halved, less one
    side
        side of the squares to which pictures are scaled, in pixels
    wavelength
        of the waves, in pixels of each scale
    dark
        strength that is added before logarithms, so that flat parts are alike
    correlations
        factor of the correlations, with which they vary about as much as the logarithms (median of
        17 sets)

    Examples
    --------
    >>> from whatwhere.views import Patterns
    >>> Patterns().rows(torch.rand(5, 1, 40, 40)).shape
    torch.Size([5, 81])
    """

    cells: tuple[int, ...] = (1,)
    directions: Annotated[int, Within(2)] = 6
    scales: Count = 3
    side: Annotated[int, Within(16)] = 64
    wavelength: Positive = 4.0
    dark: Positive = 1e-3
    correlations: Positive = 1.8

    @property
    def name(self) -> str:
        return "patterns"

    @property
    def cost(self) -> float:
        return 0.002

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        v = F.interpolate(
            pictures, (self.side, self.side), mode="bilinear", antialias=True, align_corners=False
        )
        v = opponent(v) if v.shape[1] == 3 else v.mean(1, keepdim=True)
        filters = _gabor_filters(self.directions, self.wavelength).to(v)
        margin = filters.shape[-1] // 2
        maps = []
        for scale in range(self.scales):
            if scale:
                v = F.avg_pool2d(v, 2)
            if min(v.shape[2:]) <= margin:
                break
            planes = v.flatten(0, 1)[:, None]
            waves = F.conv2d(F.pad(planes, (margin,) * 4, mode="reflect"), filters)
            even, odd = waves[:, ::2], waves[:, 1::2]
            strengths = (even.square() + odd.square() + 1e-8).sqrt()
            maps.append(strengths.unflatten(0, v.shape[:2]).flatten(1, 2))
        return maps

    def joined(self, maps: list[Tensor]) -> Tensor:
        """Means, deviations and correlations of all scales, [n, D]."""
        parts = []
        for strengths in maps:
            for cells in self.cells:
                mean = F.adaptive_avg_pool2d(strengths, cells)
                square = F.adaptive_avg_pool2d(strengths.square(), cells)
                deviation = (square - mean.square()).clamp(min=0).sqrt()
                parts += [(part + self.dark).log().flatten(1) for part in (mean, deviation)]
            parts.append(self.correlations * _correlations(strengths, self.dark))
        return torch.cat(parts, 1).float().cpu()


def _correlations(maps: Tensor, dark: float) -> Tensor:
    """Correlations of maps [n, D, h, w] over their places, of each pair once, [n, D (D - 1) / 2];
    near 0 for maps that hardly vary."""
    rows = maps.flatten(2)
    rows = rows - rows.mean(2, keepdim=True)
    floor = dark * rows.shape[2] ** 0.5
    rows = rows / (rows.norm(dim=2, keepdim=True) + floor)
    first, second = torch.triu_indices(maps.shape[1], maps.shape[1], 1).unbind()
    return (rows @ rows.transpose(1, 2))[:, first, second]


@lru_cache(maxsize=4)
def _gabor_filters(directions: int, wavelength: float) -> Tensor:
    """Pairs of even and odd waves under a Gaussian, [2 · directions, 1, size, size], without mean
    and of unit length."""
    reach = math.ceil(0.75 * wavelength)
    size = 2 * reach + 1
    steps = torch.arange(-reach, reach + 1.0)
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    window = torch.exp(-(x.square() + y.square()) / (2 * (size / 5) ** 2))
    filters = []
    for number in range(directions):
        angle = math.pi * number / directions
        along = x * math.cos(angle) + y * math.sin(angle)
        for phase in (0.0, math.pi / 2):
            wave = window * torch.cos(2 * math.pi * along / wavelength + phase)
            wave = wave - wave.sum() * window / window.sum()
            filters.append(wave / wave.norm())
    return torch.stack(filters)[:, None]
