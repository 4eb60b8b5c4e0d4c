"""A Gaussian low-pass that ignores unknown pixels: the weighted mean of the known ones around each place.

    low = G(w x) / G(w)          G: convolution with a Gaussian of `sigma` pixels, w: weights of the pixels

Pixels outside the image have weight 0, so a constant image stays constant up to its border.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

REACH = 3.0  # standard deviations at which the Gaussian ends


def radius(sigma: float) -> int:
    """How many pixels away a pixel can still have influence."""
    return math.ceil(REACH * sigma)


def blur(x: Tensor, sigma: float) -> Tensor:
    """G(x), rows and columns one after the other; x [N, C, H, W], zero outside."""
    reach = radius(sigma)
    place = torch.arange(-reach, reach + 1, dtype=torch.float64, device="cpu")
    kernel = (torch.exp(-(place**2) / (2 * sigma**2))).to(x)
    kernel = kernel / kernel.sum()
    planes = x.flatten(0, 1)[:, None]
    planes = F.conv2d(planes, kernel.view(1, 1, -1, 1), padding=(reach, 0))
    return F.conv2d(planes, kernel.view(1, 1, 1, -1), padding=(0, reach)).view(x.shape)


def lowpass(x: Tensor, sigma: float, weight: Tensor | None = None) -> Tensor:
    """The low-pass of images [N, C, H, W]; `weight` [N, 1 or C, H, W] is 0 where a pixel is unknown.

    Where no known pixel is within reach, it is the mean of the image's known pixels (0 where there are none).
    """
    known = torch.ones_like(x) if weight is None else (weight > 0).to(x).expand_as(x)
    x = torch.where(known > 0, x, 0)
    seen = blur(known[:1, :1] if weight is None else known, sigma)
    mean = x.sum((2, 3), keepdim=True) / known.sum((2, 3), keepdim=True).clamp(min=1)
    floor = torch.finfo(x.dtype).tiny
    return torch.where(seen > floor, blur(x, sigma) / seen.clamp(min=floor), mean)
