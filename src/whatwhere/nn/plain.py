"""Gaussian pooling in plain PyTorch: every device, floating dtype, transform of torch.func and
order of derivative."""

import torch
from torch import Tensor

from whatwhere.latents import PoolingParams
from whatwhere.ops import pooling as ops
from whatwhere.ops.pooling import Regions
from whatwhere.spec import Gaussian, MomentFit


def fit_pool(
    z: Tensor, regions: Regions, fit: MomentFit, return_where: bool = True
) -> tuple[Tensor, PoolingParams]:
    """Fit a Gaussian to every region and pool with it:  [N, C, H, W] → p [N, C, h, w] and where."""
    s = precise(z)
    theta = ops.fit(Gaussian(), s, regions, fit)
    p = ops.gaussian_weights(theta, regions).pool(s)
    return laid_out_like(p.to(z.dtype), z), theta.map(lambda tensor: tensor.to(z.dtype))


def pool(z: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    """p(j) = Σ_i w(i) z(i) with given Gaussians:  [N, C, H, W] → [N, C, h, w]."""
    p = ops.gaussian_weights(where.map(precise), regions).pool(precise(z))
    return laid_out_like(p.to(z.dtype), z)


def unpool(p: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    """z(i) = Σ_j w(i) p(j) over the regions j that hold i, the adjoint of `pool`:  [N, C, h, w] →
    [N, C, H, W]."""
    z = ops.gaussian_weights(where.map(precise), regions).unpool(precise(p))
    return laid_out_like(z.to(p.dtype), p)


def precise(tensor: Tensor) -> Tensor:
    """The tensor, in float32 if it is in half precision: variances and softmaxes need more than 8
    or 11 bits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def channels_last(tensor: Tensor) -> bool:
    """Whether channels are contiguous in memory. (`is_contiguous` does not work under vmap.)"""
    return tensor.shape[1] > 1 and (tensor.stride(1) == 1) is True


def laid_out_like(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor`, contiguous, in channels_last if `like` is."""
    return (
        tensor.contiguous(memory_format=torch.channels_last)
        if channels_last(like)
        else tensor.contiguous()
    )
