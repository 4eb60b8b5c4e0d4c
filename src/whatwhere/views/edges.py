"""Edges: how strong edges of each direction are in the parts of a picture (Dalal and Triggs
2005)."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.spec.checks import Within
from whatwhere.views.view import MapView


@dataclass(frozen=True)
class Edges(MapView):
    """Histograms of the directions of gradients in cells, relative to the cells around them.

    Parameters
    ----------
    cells
        parts of the height and of the width
    directions
        bins of the direction, from 0 to 180°
    side
        side of the squares to which pictures are scaled, in pixels
    limit
        largest value of a histogram relative to its surroundings, so that one strong edge does not
        hide all others (0.2 in the original)

    Examples
    --------
    >>> from whatwhere.views import Edges
    >>> Edges().rows(torch.rand(5, 1, 28, 28)).shape
    torch.Size([5, 576])
    """

    cells: tuple[int, ...] = (8,)
    directions: Annotated[int, Within(2)] = 9
    side: Annotated[int, Within(8)] = 64
    limit: float = 0.2

    @property
    def name(self) -> str:
        return "edges"

    @property
    def cost(self) -> float:
        return 0.001

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        v = F.interpolate(
            pictures, (self.side, self.side), mode="bilinear", antialias=True, align_corners=False
        )
        padded = F.pad(v, (1, 1, 1, 1), mode="replicate")
        across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
        down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
        lengths, strongest = (across.square() + down.square()).sqrt().max(1, keepdim=True)
        angles = torch.atan2(down.gather(1, strongest), across.gather(1, strongest))
        return [lengths * self._memberships(angles)]

    def joined(self, maps: list[Tensor]) -> Tensor:
        """Average in cells, each relative to the 3 × 3 cells around it; rows have unit length."""
        (strengths,) = maps
        parts = []
        for cells in self.cells:
            histograms = F.adaptive_avg_pool2d(strengths, cells)
            squares = histograms.square().sum(1, keepdim=True)
            around = F.avg_pool2d(squares, 3, 1, 1, count_include_pad=False)
            # flat parts stay weak next to the edges of the same picture
            floor = 0.01 * squares.mean((2, 3), keepdim=True) + 1e-12
            relative = (histograms / (4 * around + floor).sqrt()).clamp(max=self.limit)
            parts.append(F.normalize(relative.flatten(1), dim=1))
        return torch.cat(parts, 1).float().cpu()

    def _memberships(self, angles: Tensor) -> Tensor:
        """Membership of angles [n, 1, h, w] in the two nearest directions, [n, bins, h, w]."""
        place = (angles / math.pi).remainder(1) * self.directions
        numbers = torch.arange(self.directions).to(angles)[:, None, None]
        distance = (place - numbers).abs()
        return (1 - torch.minimum(distance, self.directions - distance)).clamp(min=0)
