"""How the pooling variables of a region are chosen from the signal that comes up to it, a function
for each kind of pooling.

All take the elements of every region, s [N, b, m, s_y, s_x, h, w], as `ops.pooling.gather` returns
them, and the axes that have variables: 0, 1 and 2 are maps, rows and columns. They return μ and γ,
[N, axis, b, h, w].
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from whatwhere.formulas import pooling as formulas

SWITCH = 1e4
"""A precision at which every element but the one at μ has weight 0 exactly, in every dtype."""

ELEMENTS = (2, 3, 4)  # the axes of s that hold the elements of a region


def coordinates(size: int, axis: int, like: Tensor) -> Tensor:
    """x_i of a region's elements along an axis, centred; shaped to stand on that axis of s."""
    x = torch.arange(size, dtype=like.dtype, device=like.device) - (size - 1) / 2
    return x.view([size if a == axis else 1 for a in range(3)] + [1, 1])


def moments(
    s: Tensor, axes: Sequence[int], gamma_min: float, gamma_max: float, power: int
) -> tuple[Tensor, Tensor]:
    """Compute the Gaussian of each region: μ is the mean of the position weighted by |s|^power, γ
    is 1 / its variance, bounded.

    A region without signal is centred and flat.
    """
    largest = s.abs().amax(ELEMENTS, keepdim=True)
    s = formulas.strength(s / formulas.or_one(largest), power)
    total = s.sum(ELEMENTS, keepdim=True)
    s = s / formulas.or_one(total)
    mu, gamma = [], []
    for axis in axes:
        size = s.shape[2 + axis]
        x = coordinates(size, axis, s)
        mean = (s * x).sum(ELEMENTS, keepdim=True)
        variance = (s * (x - mean).square()).sum(ELEMENTS)
        precision = formulas.precision(variance, total.squeeze(ELEMENTS), gamma_min, gamma_max)
        bounds = ((size - 1) / 2, gamma_min, gamma_max)
        bounded = formulas.bound(mean.squeeze(ELEMENTS), precision, bounds)
        mu.append(bounded[0])
        gamma.append(bounded[1])
    return torch.stack(mu, 1), torch.stack(gamma, 1)


def switches(s: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Put all weight on the largest |s| of each region; on the first if several are equal."""
    where = s.abs().flatten(2, 4).argmax(2)
    sizes = s.shape[2:5]
    index = {
        0: where // (sizes[1] * sizes[2]),
        1: where // sizes[2] % sizes[1],
        2: where % sizes[2],
    }
    centre = [index[axis] - (sizes[axis] - 1) / 2 for axis in axes]
    mu = torch.stack(centre, 1).to(s.dtype)
    return mu, torch.full_like(mu, SWITCH)


def flat(s: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Give all elements the same weight."""
    maps, rows, columns = s.shape[1], s.shape[5], s.shape[6]
    mu = s.new_zeros(s.shape[0], len(axes), maps, rows, columns)
    return mu, torch.zeros_like(mu)
