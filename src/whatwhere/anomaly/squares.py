"""Means and extremes of the squares of a picture."""

from collections.abc import Callable
from functools import partial, reduce

import torch
import torch.nn.functional as F
from torch import Tensor


def mean_pool(values: Tensor, side: int) -> Tensor:
    """Return the mean of every square of a picture [C, H, W]."""
    pool = partial(F.avg_pool2d, kernel_size=side, ceil_mode=True, count_include_pad=False)
    return _by_squares(pool, values[None], side)[0]


def max_pool(values: Tensor, side: int) -> Tensor:
    """Return the largest value of every square of a picture [C, H, W]."""
    return _by_squares(partial(_extreme, torch.maximum, side), values[None], side)[0]


def min_pool(values: Tensor, side: int) -> Tensor:
    """Return the smallest value of every square of a picture [C, H, W]."""
    return _by_squares(partial(_extreme, torch.minimum, side), values[None], side)[0]


def _extreme(choose: Callable[[Tensor, Tensor], Tensor], side: int, values: Tensor) -> Tensor:
    """Return the extreme of every square of pictures [1, C, H, W]: first of rows, which is several
    times faster than `max_pool2d`. A picture smaller than a square is one."""
    rows, columns = (min(side, extent) for extent in values.shape[2:])
    of_rows = reduce(choose, (values[:, :, row::rows] for row in range(rows)))
    return reduce(choose, (of_rows[..., column::columns] for column in range(columns)))


def _by_squares(pool: Callable[[Tensor], Tensor], values: Tensor, side: int) -> Tensor:
    """Return a value for every square of pictures [1, C, H, W]. The last squares are as large as
    all others: they begin earlier, and overlap those before them. A mean of few pixels varies more,
    so a part of a square would look odd at the lower and right border."""
    for axis in (2, 3):
        length = values.shape[axis]
        rest = length % side
        if rest and length > side:
            first = _by_squares(pool, values.narrow(axis, 0, length - rest), side)
            last = _by_squares(pool, values.narrow(axis, length - side, side), side)
            return torch.cat([first, last], axis)
    return pool(values)
