"""Where, for a classifier: the moments of the positions that the pooling variables stand for, cell
by cell.

A region's Gaussian has weights w² = q over its elements, so its mean position is x̄ = Σ q x. Within
a cell these positions are averaged with the features p as weights: their mean, and how far they
deviate from it, along each axis. Both are multiplied by what the cell is pooled to, so that a cell
without features says nothing about where.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere import PoolingParams


def mean_position(theta: PoolingParams, size: int) -> Tensor:
    """The mean position in every region along rows and columns, [N, 2, B, H, W]: from -1, its first
    element, to 1.

    theta  pooling variables of a layer
    size   of a region, in elements along an axis
    """
    mu, gamma = theta.mu[:, -2:, ..., None], theta.gamma[:, -2:, ..., None]
    x = torch.arange(size, dtype=mu.dtype, device=mu.device) - (size - 1) / 2
    q = torch.softmax(-gamma * (x - mu).square() / 2, -1)
    return (q * x).sum(-1) / max((size - 1) / 2, 0.5)


def where_cells(p: Tensor, position: Tensor, cells: Tensor, cell: tuple[int, int]) -> Tensor:
    """The moments of the cell at every position of a map, times what the cell is pooled to.

    p         features [N, B, H, W]
    position  of every feature in its region, [N, 2, B, H, W]
    cells     what the cells are pooled to, [N, B, H - c + 1, W - c + 1]
    cell      height and width of a cell
    returns   [N, 4 B, H - c + 1, W - c + 1]: mean and deviation along rows, then along columns
    """
    weight = F.avg_pool2d(p.abs(), cell, stride=1).clamp(min=torch.finfo(p.dtype).tiny)
    moments = []
    for axis in range(2):
        x = position[:, axis]
        mean, square = (
            F.avg_pool2d(p.abs() * power, cell, stride=1) / weight for power in (x, x.square())
        )
        moments += [cells * mean, cells * (square - mean.square()).clamp(min=0).sqrt()]
    return torch.cat(moments, 1)
