"""Colour: how much of each colour a picture has, as a whole and in its quarters."""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.spec.checks import Within
from whatwhere.views.view import MapView, at_most

_OPPONENT = ((1 / 3, 1 / 3, 1 / 3), (0.5, -0.5, 0.0), (0.25, 0.25, -0.5))
"""Brightness, red against green, and yellow against blue."""


@dataclass(frozen=True)
class Colour(MapView):
    """Shares of the colours of a picture: a smooth histogram of brightness and two differences of
    colours. Grey pictures have a histogram of brightness; other numbers of channels, one of each.

    Parameters
    ----------
    brightness
        bins of the brightness
    hues
        bins of each of the two differences of colours
    contrast
        factor of the differences of colours, which are small in most pictures; beyond ±½ they count
        as ±½
    grey
        bins of the brightness of grey pictures, and of each of several channels
    side
        longest side of the pictures that are described, in pixels: larger ones are reduced

    Examples
    --------
    >>> from whatwhere.views import Colour
    >>> Colour(cells=(1,)).rows(torch.rand(5, 3, 40, 40)).shape
    torch.Size([5, 256])
    """

    brightness: Annotated[int, Within(2)] = 4
    hues: Annotated[int, Within(2)] = 8
    contrast: float = 1.5
    grey: Annotated[int, Within(2)] = 32
    side: Annotated[int, Within(1)] = 64

    @property
    def name(self) -> str:
        return "colour"

    @property
    def cost(self) -> float:
        return 0.004

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        v = at_most(pictures, self.side)
        if v.shape[1] != 3:
            parts = [_memberships(channel, self.grey) for channel in v.clamp(0, 1).unbind(1)]
            return [torch.cat(parts, 1) / v.shape[1]]
        mixed = opponent(v)
        bright = _memberships(mixed[:, 0].clamp(0, 1), self.brightness)
        red = _memberships((0.5 + self.contrast * mixed[:, 1]).clamp(0, 1), self.hues)
        blue = _memberships((0.5 + self.contrast * mixed[:, 2]).clamp(0, 1), self.hues)
        joint = torch.einsum("nahw,nbhw,nchw->nabchw", bright, red, blue)
        return [joint.flatten(1, 3)]

    def joined(self, maps: list[Tensor]) -> Tensor:
        """Roots of the shares, so that small shares count as well: rows have unit length."""
        (shares,) = maps
        parts = [F.adaptive_avg_pool2d(shares, cells).flatten(1).sqrt() for cells in self.cells]
        return torch.cat([F.normalize(part, dim=1) for part in parts], 1).float().cpu()


def opponent(pictures: Tensor) -> Tensor:
    """Return brightness, red against green, and yellow against blue of pictures [n, 3, h, w]."""
    return torch.einsum("oc,nchw->nohw", pictures.new_tensor(_OPPONENT), pictures)


def _memberships(values: Tensor, bins: int) -> Tensor:
    """Membership of values [n, h, w] from 0 to 1 in the two nearest of some bins, [n, bins, h, w]:
    a small change of a value changes it little."""
    centres = torch.linspace(0, 1, bins).to(values)
    return (1 - (bins - 1) * (values[:, None] - centres[:, None, None]).abs()).clamp(min=0)
