"""Gaussian pooling by fused kernels, one pass over memory forward and one backward, with its
derivatives.

Five operations, of which two compute derivatives. With ⟨z, U p⟩ = Σ_j p(j) Σ_i w(i) z(i):

    fit_pool(z) → p, μ, γ                         pool(z, μ, γ) → p         unpool(p, μ, γ) → z
    fit_pool_backward(z, ∇p, ∇μ, ∇γ) → ∇z         slopes(z, p, μ, γ) → ∂⟨z, U p⟩ / ∂(p, μ, γ)

Only the inputs are saved for the backward pass: fitting a region's Gaussian again costs less than
reading it. A derivative that is differentiated again is that of the plain form.
"""

import importlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function, forward_ad
from torch.autograd.functional import vjp
from torch.jit._trace import is_tracing

from whatwhere.latents import PoolingParams
from whatwhere.nn import plain
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

LARGEST_KERNEL = 64  # elements: the loops of the Triton kernels over a region are unrolled
HAS_TRITON, HAS_NUMBA = find_spec("triton") is not None, find_spec("numba") is not None


class Maps(NamedTuple):
    """What an operation reads, or writes: z [N, C, H, W], p [N, C, h, w], μ and γ [N, 2,
    C, h, w]."""

    z: Tensor | None = None
    p: Tensor | None = None
    mu: Tensor | None = None
    gamma: Tensor | None = None


def unsupported_reason(regions: Regions, *tensors: Tensor) -> str | None:
    """Why the kernels do not support this; None if they do."""
    if torch.compiler.is_compiling() or is_tracing():
        return "a compiled or exported program contains plain operators only"
    first = tensors[0]
    if any(tensor.device != first.device for tensor in tensors):
        return "the tensors are on several devices"
    if first.device.type not in ("cpu", "cuda"):
        return f"the tensors are on {first.device.type}, the kernels run on cuda and cpu"
    if torch._C._are_functorch_transforms_active() or any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    ):
        return "torch.func and forward-mode derivatives need the plain form"
    if torch._C._len_torch_dispatch_stack() > 0 or any(
        type(t) not in (Tensor, nn.Parameter) for t in tensors
    ):
        return "a torch dispatch mode is active, or a tensor is of a class of its own"
    extra, installed = ("gpu", HAS_TRITON) if first.is_cuda else ("cpu", HAS_NUMBA)
    if not installed:
        return f"the compiler of the kernels is not installed (pip install 'whatwhere[{extra}]')"
    if first.is_cuda and regions.size[1] * regions.size[2] > LARGEST_KERNEL:
        return f"a region has more than {LARGEST_KERNEL} elements"
    if first.is_cpu and {tensor.dtype for tensor in tensors} not in (
        {torch.float32},
        {torch.float64},
    ):
        return (
            "on the CPU the kernels support float32 and float64, one for all tensors, not"
            f" {first.dtype}"
        )
    return None


def fit_pool(
    z: Tensor, regions: Regions, fit: MomentFit, return_where: bool
) -> tuple[Tensor, PoolingParams | None]:
    p, mu, gamma = FitPool.apply(z, regions, fit, return_where)
    return p, PoolingParams(mu, gamma) if return_where else None


def pool(z: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    return Pool.apply(z, *_expanded(where, z, regions), regions)


def unpool(p: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    return Unpool.apply(p, *_expanded(where, p, regions), regions)


def _expanded(where: PoolingParams, maps: Tensor, regions: Regions) -> list[Tensor]:
    return [theta.expand(maps.shape[0], 2, *regions.grid) for theta in (where.mu, where.gamma)]


# --- as functions with derivatives


class FitPool(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, regions: Regions, fit: MomentFit, return_where: bool) -> Any:
        # outputs may be unused: no tensors of zeros for their gradients
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(z)
        ctx.regions, ctx.fit = regions, fit
        p = _new(z, regions.grid)
        mu, gamma = (_new(z, regions.grid, (2,)) if return_where else None for _ in range(2))
        launch("fit_pool", regions, Maps(z), Maps(None, p, mu, gamma), fit)
        return p, mu, gamma

    @staticmethod
    def backward(ctx: Any, d_p: Tensor | None, d_mu: Tensor | None, d_gamma: Tensor | None) -> Any:
        (z,), regions = ctx.saved_tensors, ctx.regions
        d_p = z.new_zeros(z.shape[0], *regions.grid) if d_p is None else d_p
        if torch.is_grad_enabled() or d_mu is not None or d_gamma is not None:
            zeros = z.new_zeros(z.shape[0], 2, *regions.grid)
            d_mu, d_gamma = (zeros if d is None else d for d in (d_mu, d_gamma))
        if torch.is_grad_enabled():

            def fit_pool(z: Tensor) -> tuple[Tensor, ...]:
                p, where = plain.fit_pool(z, regions, ctx.fit)
                return p, where.mu, where.gamma

            return vjp(fit_pool, z, (d_p, d_mu, d_gamma), create_graph=True)[1], None, None, None
        d_z = _new_map(z, regions)
        launch("fit_pool_backward", regions, Maps(z, d_p, d_mu, d_gamma), Maps(d_z), ctx.fit)
        return d_z, None, None, None


class Pool(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, mu: Tensor, gamma: Tensor, regions: Regions) -> Tensor:
        ctx.save_for_backward(z, mu, gamma)
        ctx.regions = regions
        return _pool(z, mu, gamma, regions)

    @staticmethod
    def backward(ctx: Any, d_p: Tensor) -> Any:
        if torch.is_grad_enabled():
            return *_plain_vjp(plain.pool, ctx, d_p), None
        (z, mu, gamma), needed = ctx.saved_tensors, ctx.needs_input_grad
        d_z = _unpool(d_p, mu, gamma, ctx.regions) if needed[0] else None
        d_mu, d_gamma = (
            _slopes(z, d_p, mu, gamma, ctx.regions)[1:] if needed[1] or needed[2] else (None, None)
        )
        return d_z, d_mu, d_gamma, None


class Unpool(Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, mu: Tensor, gamma: Tensor, regions: Regions) -> Tensor:
        ctx.save_for_backward(p, mu, gamma)
        ctx.regions = regions
        return _unpool(p, mu, gamma, regions)

    @staticmethod
    def backward(ctx: Any, d_z: Tensor) -> Any:
        if torch.is_grad_enabled():
            return *_plain_vjp(plain.unpool, ctx, d_z), None
        p, mu, gamma = ctx.saved_tensors
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            return *_slopes(d_z, p, mu, gamma, ctx.regions), None
        return _pool(d_z, mu, gamma, ctx.regions), None, None, None


def _plain_vjp(function: Callable[..., Tensor], ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `plain.pool` or `plain.unpool`, which can be differentiated again."""

    def of_tensors(x: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        return function(x, PoolingParams(mu, gamma), ctx.regions)

    return vjp(of_tensors, ctx.saved_tensors, gradient, create_graph=True)[1]


# --- the kernels


def _pool(z: Tensor, mu: Tensor, gamma: Tensor, regions: Regions) -> Tensor:
    p = _new(z, regions.grid)
    launch("pool", regions, Maps(z, None, mu, gamma), Maps(p=p))
    return p


def _unpool(p: Tensor, mu: Tensor, gamma: Tensor, regions: Regions) -> Tensor:
    z = _new_map(p, regions)
    launch("unpool", regions, Maps(None, p, mu, gamma), Maps(z))
    return z


def _slopes(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, regions: Regions
) -> tuple[Tensor, Tensor, Tensor]:
    d_p, (d_mu, d_gamma) = (
        _new(p, regions.grid),
        (_new(p, regions.grid, (2,), x.dtype) for x in (mu, gamma)),
    )
    launch("slopes", regions, Maps(z, p, mu, gamma), Maps(None, d_p, d_mu, d_gamma))
    return d_p, d_mu, d_gamma


def _new_map(like: Tensor, regions: Regions) -> Tensor:
    """Memory for z; zero if regions overlap, so that their contributions can be added, or leave
    elements out."""
    z = _new(like, regions.shape)
    return z if regions.tiling else z.zero_()


def _new(
    like: Tensor, shape: Sequence[int], axes: Sequence[int] = (), dtype: torch.dtype | None = None
) -> Tensor:
    """Uninitialised maps [N, C, …], or variables [N, *axes, C, …], in the layout of `like`."""
    if plain.channels_last(like):
        return like.new_empty(like.shape[0], *axes, *shape[1:], shape[0], dtype=dtype).movedim(
            -1, -3
        )
    return like.new_empty(like.shape[0], *axes, *shape, dtype=dtype)


def launch(
    operation: str, regions: Regions, read: Maps, written: Maps, fit: MomentFit = MomentFit()
) -> None:
    """Run an operation on all regions; `fit` is that of the operations that fit."""
    given = next(tensor for tensor in read if tensor is not None)
    if given.numel() > 0:
        kernels(given).launch(operation, regions, read, written, fit)


def kernels(maps: Tensor) -> ModuleType:
    """The module with the kernels for the device of a tensor."""
    return importlib.import_module(
        "whatwhere.nn.triton_pooling" if maps.is_cuda else "whatwhere.nn.cpu_pooling"
    )
