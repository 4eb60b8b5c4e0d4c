"""Upright images: each sheared along its rows so that its ink leans neither way, and centred.

It is moment matching for the whole image: where the ink is (its mean) and how it leans (the
covariance of row and column) are fitted and taken out, so that what follows sees less of them.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data import Images

MOST = 1.0  # columns per row: a steeper shear is cut


def deskew(images: Tensor) -> Tensor:
    """Images [N, C, H, W] with ink > 0 on a ground of 0, upright and centred; what leaves the frame
    is lost.

    >>> slanted = torch.zeros(1, 1, 9, 9)
    >>> for row in range(2, 7): slanted[0, 0, row, row] = 1.0
    >>> deskew(slanted)[0, 0].sum(0).argmax().item(), bool((deskew(slanted)[0, 0, 2:7, 4] > 0.9).all())
    (4, True)
    """  # noqa: E501
    ink = images.clamp(min=0).mean(1)
    mass = ink.sum((1, 2)).clamp(min=torch.finfo(ink.dtype).tiny)
    y, x = (_axis(extent, ink) for extent in ink.shape[1:])
    y, x = y[:, None], x[None]

    def mean(values: Tensor) -> Tensor:
        return (ink * values).sum((1, 2)) / mass

    centre_y, centre_x = mean(y), mean(x)
    dy, dx = y - centre_y[:, None, None], x - centre_x[:, None, None]
    lean = mean(dx * dy) / mean(dy * dy).clamp(min=1e-6)
    limit = MOST * ink.shape[1] / ink.shape[2]
    lean = lean.clamp(-limit, limit)
    one, zero = torch.ones_like(lean), torch.zeros_like(lean)
    rows = torch.stack(
        [torch.stack([one, lean, centre_x], 1), torch.stack([zero, one, centre_y], 1)], 1
    )
    grid = F.affine_grid(rows, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def _axis(extent: int, like: Tensor) -> Tensor:
    """The centres of pixels in the units of `affine_grid`, from -1 to 1 over the frame."""
    return (2 * torch.arange(extent, dtype=like.dtype, device=like.device) + 1) / extent - 1


def deskewed(images: Images) -> Images:
    """The same images, upright; all of them are read now, as float32."""
    pixels = np.concatenate([deskew(images[rows]).numpy() for rows in images.batches()])
    return Images(pixels, images.labels, f"{images.name}, upright", images.classes)
