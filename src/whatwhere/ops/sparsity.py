"""The sparsity penalty Σ|p|^α, the shrinkage that lowers it, and the projection (paper, Eqns. shrink to proj)."""

import math

import torch
from torch import Tensor

from whatwhere.ops import formulas


def penalty(p: Tensor, alpha: float) -> Tensor:
    """Σ|p|^α of every image:  [N, …] → [N]."""
    powered: Tensor = formulas.powered(p, alpha)
    return powered.flatten(1).sum(1)


def shrink(p: Tensor, beta: Tensor, alpha: float) -> Tensor:
    """`formulas.shrink`: one gradient step of size β on the penalty that stops at zero (Eqns. shrink, shrinkL05)."""
    shrunk: Tensor = formulas.shrink(p, beta, alpha)
    return shrunk


def shrink_exact(p: Tensor, beta: Tensor, alpha: float) -> Tensor:
    """The proximal map argmin_u ½ (u - p)² + β |u|^α, for α = 1 and for α = ½ (half thresholding).

    For α = ½ the minimum is 0 up to |p| = 3/2 β^(2/3), and beyond it a root of a cubic:
    u = 2/3 p (1 + cos(2π/3 - 2/3 φ)),  φ = arccos(β/4 (|p|/3)^(-3/2)).
    """
    if alpha == 1:
        return shrink(p, beta, alpha)
    if alpha != 0.5:
        raise ValueError(f"alpha = {alpha} was given; the proximal map has a closed form at 0.5 and 1 only")
    magnitude = p.abs()
    phi = torch.arccos((beta / 4 * (magnitude / 3).pow(-1.5)).clamp(max=1))
    root = 2 / 3 * p * (1 + torch.cos(2 * math.pi / 3 - 2 / 3 * phi))
    return root.where(magnitude > 1.5 * beta.pow(2 / 3), torch.zeros_like(p))


def project(p: Tensor, nonnegative: bool) -> Tensor:
    """The projection onto the non-negative set, where the model has one."""
    return p.clamp(min=0) if nonnegative else p
