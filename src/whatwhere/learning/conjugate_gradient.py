"""Conjugate gradients for A x = b with A symmetric and positive semi-definite, given as a function."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradient(apply: Callable[[Tensor], Tensor], residual: Tensor, x: Tensor, steps: int) -> Tensor:
    """Take `steps` steps from x, whose residual b - A x is given; stop early where nothing is left to gain."""
    direction, r = residual, residual
    rr = torch.sum(r * r)
    for _ in range(steps):
        image = apply(direction)
        curvature = torch.sum(direction * image)
        if not (rr > 0 and curvature > 0):
            break
        step = rr / curvature
        x, r = x + step * direction, r - step * image
        rr, rr_old = torch.sum(r * r), rr
        direction = r + rr / rr_old * direction
    return x
