"""The convolution sub-layer (paper, Eqn. deconv), its adjoint, its gradient with respect to the
filters, and these.

Filters are f [C, B, K, L]: C maps below, B maps above. Down is a *valid* convolution, so the maps z
are K - 1 rows and L - 1 columns larger than what they explain; up is its adjoint, the *full*
correlation. Where two maps are not connected the filter is zero.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight


def convolve_down(z: Tensor, f: Tensor) -> Tensor:
    """v^c = Σ_b z_b * f^c_b:  [N, B, H + K - 1, W + L - 1] → [N, C, H, W]."""
    return F.conv2d(z, f.flip(2, 3))


def convolve_up(v: Tensor, f: Tensor) -> Tensor:
    """The adjoint of `convolve_down`:  [N, C, H, W] → [N, B, H + K - 1, W + L - 1]."""
    return F.conv2d(v, f.transpose(0, 1), padding=(f.shape[2] - 1, f.shape[3] - 1))


def filter_gradient(z: Tensor, v: Tensor) -> Tensor:
    """The adjoint of f ↦ convolve_down(z, f), summed over images:  [C, B, K, L]."""
    rows, columns = (
        above - below + 1 for above, below in zip(z.shape[2:], v.shape[2:], strict=True)
    )
    gradient: Tensor = conv2d_weight(z, (v.shape[1], z.shape[1], rows, columns), v)
    return gradient.flip(2, 3)


def random_connectivity(
    below: int, maps: int, fan_in: int | None, generator: torch.Generator
) -> Tensor:
    """A map [below, maps] of booleans: each column joins one map to `fan_in` different
    maps below."""
    if fan_in is None:
        return torch.ones(below, maps, dtype=torch.bool)
    order = torch.stack([torch.randperm(below, generator=generator) for _ in range(maps)], dim=1)
    return order < fan_in


def project_filters(f: Tensor, connected: Tensor, *, nonnegative: bool, normalise: str) -> Tensor:
    """Mask, project to ≥ 0 and scale to unit length: per filter (all planes of a map) or per plane.

    A filter that has vanished keeps its zeros: there is no direction to scale it to.
    """
    f = f * connected[:, :, None, None]
    if nonnegative:
        f = f.clamp(min=0)
    within = (0, 2, 3) if normalise == "filter" else (2, 3)
    squared = f.square().sum(within, keepdim=True)
    # √0 has no derivative that is a number
    return f / squared.where(squared > 0, torch.ones_like(squared)).sqrt()
