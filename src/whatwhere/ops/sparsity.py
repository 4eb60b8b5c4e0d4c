"""The sparsity penalty Σ|p|^α, the shrinkage that lowers it, and the projection (paper, Eqns. shrink to proj)."""

from torch import Tensor

from whatwhere.ops import formulas


def penalty(p: Tensor, alpha: float) -> Tensor:
    """Σ|p|^α of every image:  [N, …] → [N]."""
    powered: Tensor = formulas.powered(p, alpha)
    return powered.flatten(1).sum(1)


def shrink(p: Tensor, beta: Tensor, alpha: float) -> Tensor:
    """`formulas.shrink`: one gradient step of size β on the penalty that stops at zero (Eqns. shrink, shrinkL05)."""
    return formulas.shrink(p, beta, alpha)


def project(p: Tensor, nonnegative: bool) -> Tensor:
    """The projection onto the non-negative set, where the model has one."""
    return p.clamp(min=0) if nonnegative else p
