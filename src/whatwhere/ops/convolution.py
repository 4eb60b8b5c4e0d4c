"""The convolution sub-layer (paper, Eqn. 4), its adjoint, and its gradient with respect to the
filters.

Filters are f [C, B, K, L]: C maps below, B maps above. Down is a *valid* convolution, so the maps z
are K - 1 rows and L - 1 columns larger than what they explain; up is its adjoint, the *full*
correlation. Where two maps are not connected the filter is zero.
"""

import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight


def convolve_down(z: Tensor, f: Tensor) -> Tensor:
    """v^c = Σ_b z_b * f^c_b:  [N, B, H + K - 1, W + L - 1] → [N, C, H, W]."""
    return F.conv2d(z, f.flip(2, 3))


def convolve_up(v: Tensor, f: Tensor) -> Tensor:
    """Compute the adjoint of `convolve_down`:  [N, C, H, W] → [N, B, H + K - 1, W + L - 1]."""
    return F.conv2d(v, f.transpose(0, 1), padding=(f.shape[2] - 1, f.shape[3] - 1))


def filter_gradient(z: Tensor, v: Tensor) -> Tensor:
    """Compute the adjoint of f ↦ convolve_down(z, f), summed over images:  [C, B, K, L]."""
    rows = z.shape[2] - v.shape[2] + 1
    columns = z.shape[3] - v.shape[3] + 1
    gradient: Tensor = conv2d_weight(z, (v.shape[1], z.shape[1], rows, columns), v)
    return gradient.flip(2, 3)
