"""Gaussian pooling in plain PyTorch: every device, floating dtype, transform of torch.func and
order of derivative."""

import torch
from torch import Tensor
from torch.jit._trace import is_tracing

from whatwhere.latents import PoolingParams
from whatwhere.ops import pooling as ops
from whatwhere.ops.pooling import Regions
from whatwhere.spec import Gaussian, MomentFit


def fit_pool(
    z: Tensor, regions: Regions, fit: MomentFit, return_where: bool = True
) -> tuple[Tensor, PoolingParams | None]:
    """Fit a Gaussian to every region and pool with it:  [N, C, H, W] → p [N, C, h, w] and where."""
    s = precise(z)
    if not return_where and is_exporting() and ops.has_pairs(regions):
        return _pool_pairs(s, regions, fit).to(z.dtype), None
    theta = ops.fit(Gaussian(), s, regions, fit)
    p = ops.gaussian_weights(theta, regions).pool(s)
    return _laid_out_like(p.to(z.dtype), z), theta.map(lambda tensor: tensor.to(z.dtype))


def _pool_pairs(z: Tensor, regions: Regions, fit: MomentFit) -> Tensor:
    """Fit and pool regions of 2 × 2 in few operations, for exported programs.

    Along an axis of two elements, with shares q₀ and q₁ of the strength and m = q₁ - q₀, the
    Gaussian has γ μ = γ m / 2 with 1/γ = (1 - m²) / 4, and its weights are as exp(∓ γ μ / 4): all
    four weights of a region are exponentials of sums of ∓ γ μ / 4, normalised to Σ w² = 1.

    Strengths are not divided by the largest of their region: elements are taken for 0 below 1e-19,
    and must be below 1e19.
    """
    _, h, w = regions.grid
    # columns apart, then rows: the four elements of every region, [4, M]
    elements = z.reshape(-1, 2).t().reshape(2, -1, 2, w).permute(2, 0, 1, 3).reshape(4, -1)
    signs = z.new_tensor([[-1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, -1.0, 1.0]])
    total = z.new_ones(1, 4)
    strength = elements * elements if fit.power == 2 else elements.abs()
    m = (signs @ strength) / (total @ strength).clamp(min=1.2e-38)
    # γ μ / 2; γ is at least 4 here, and an element of a weight below 1e-17 does not count
    variance = (1 - m * m).clamp(min=4 / max(fit.gamma_max, 1.0))
    if fit.gamma_min > 4 or fit.gamma_max < 4:
        variance = variance.clamp(4 / fit.gamma_max, 4 / max(fit.gamma_min, 1e-9))
    half = m / variance
    if fit.gamma_max > 160:
        half = half.clamp(-40.0, 40.0)
    weights = ((signs.t() * 0.5) @ half).exp()
    pooled = (total @ (weights * elements)) / (total @ (weights * weights)).sqrt()
    return pooled.view(z.shape[0], z.shape[1], h, w)


def is_exporting() -> bool:
    """Tell whether the operators that run are recorded for a program without our kernels."""
    # the flag itself: before torch 2.13, torch.compile takes `is_exporting()` for true. Before
    # torch 2.7 there is none, and an exported program keeps the kernels.
    return bool(getattr(torch.compiler, "_is_exporting_flag", False)) or is_tracing()


def pool(z: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    """p(j) = Σ_i w(i) z(i) with given Gaussians:  [N, C, H, W] → [N, C, h, w]."""
    p = ops.gaussian_weights(where.map(precise), regions).pool(precise(z))
    return _laid_out_like(p.to(z.dtype), z)


def unpool(p: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    """z(i) = Σ_j w(i) p(j) over the regions j that hold i, the adjoint of `pool`:  [N, C, h, w] →
    [N, C, H, W]."""
    z = ops.gaussian_weights(where.map(precise), regions).unpool(precise(p))
    return _laid_out_like(z.to(p.dtype), p)


def precise(tensor: Tensor) -> Tensor:
    """Return the tensor, in float32 if it is in half precision: variances and softmaxes need more
    than 8 or 11 bits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def channels_last(tensor: Tensor) -> bool:
    """Tell whether channels are contiguous in memory. (`is_contiguous` does not work under
    vmap.)"""
    return tensor.shape[1] > 1 and (tensor.stride(1) == 1) is True


def _laid_out_like(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor`, contiguous, in channels_last if `like` is."""
    return (
        tensor.contiguous(memory_format=torch.channels_last)
        if channels_last(like)
        else tensor.contiguous()
    )
