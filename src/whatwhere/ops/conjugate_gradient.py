"""Conjugate gradients: steps towards the solution of A x = b for a symmetric, positive A that is
only known by its products."""

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradient(
    apply: Callable[[Tensor], Tensor],
    residual: Tensor,
    x: Tensor,
    steps: int,
    *,
    dim: int | None = None,
    tolerance: float = 0.0,
    floor: float = 0.0,
) -> Tensor:
    """Take at most `steps` steps towards A x = b from x, whose residual b - A x is given.

    Parameters
    ----------
    apply
        multiplies by A, which is symmetric and positive semi-definite
    dim
        the dimension that sums run over: every column is a separate system (0), or all numbers are
        one system (None)
    tolerance
        a system is solved, and no longer changes, once its residual is this share of the first
    floor
        the same, once the square of its residual is this small
    """
    r = residual
    direction = residual
    rr = torch.sum(r * r, dim)
    goal = (tolerance**2 * rr).clamp(min=floor)
    for _ in range(steps):
        unsolved = rr > goal
        if not bool(unsolved.any()):
            break
        image = apply(direction)
        curvature = torch.sum(direction * image, dim)
        # without curvature there is nothing to gain
        moves = unsolved & (curvature > 0)
        if not bool(moves.any()):
            break
        step = (rr / curvature).where(moves, torch.zeros_like(rr))
        x = x + step * direction
        r = r - step * image
        rr_old = rr
        rr = torch.sum(r * r, dim)
        # a system that is solved exactly has no next direction
        direction = r + rr / rr_old.where(rr_old > 0, torch.ones_like(rr)) * direction
    return x
