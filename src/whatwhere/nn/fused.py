"""Gaussian pooling as PyTorch operators with fused kernels: one pass over memory forward, one backward.

Three operators, and two that compute their derivatives. With ⟨z, U p⟩ = Σ_j p(j) Σ_i w(i) z(i):

    fit_pool(z) → p, μ, γ                         pool(z, μ, γ) → p         unpool(p, μ, γ) → z
    fit_pool_backward(z, ∇p, ∇μ, ∇γ) → ∇z         slopes(z, p, μ, γ) → ∂⟨z, U p⟩ / ∂(p, μ, γ)

Only the inputs are saved for the backward pass: fitting a region's Gaussian again costs less than reading it.
A derivative that is differentiated again is that of the plain form.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.jit._trace import is_tracing

from whatwhere.latents import PoolingParams
from whatwhere.nn import plain
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

LARGEST_KERNEL = 64  # elements: the loops of the Triton kernels over a region are unrolled
HAS_TRITON, HAS_NUMBA = find_spec("triton") is not None, find_spec("numba") is not None
# Regions as an argument of an operator: size, stride, padding, shape and grid, each of rows and columns
Geometry = Sequence[int]
SHAPE, GRID = slice(6, 8), slice(8, 10)
NONE = (None, None, None)  # maps that an operation does not read, or write


def unsupported_reason(regions: Regions, *tensors: Tensor) -> str | None:
    """Why the kernels do not support this; None if they do."""
    if any(tensor.device != tensors[0].device for tensor in tensors):
        return "the tensors are on several devices"
    reason = {"cuda": _unsupported_on_cuda, "cpu": _unsupported_on_cpu}.get(tensors[0].device.type)
    if reason is None:
        return f"the tensors are on {tensors[0].device.type}, the kernels run on cuda and cpu"
    if torch.compiler.is_exporting() or is_tracing():
        return "an exported program contains plain operators only"
    if not torch.compiler.is_compiling() and _transformed(*tensors):
        return "torch.func and forward-mode derivatives need the plain form"
    return reason(regions, *tensors)


def _unsupported_on_cuda(regions: Regions, *tensors: Tensor) -> str | None:
    if not HAS_TRITON:
        return "the package triton is not installed"
    if regions.size[1] * regions.size[2] > LARGEST_KERNEL:
        return f"a region has more than {LARGEST_KERNEL} elements"
    return None


def _unsupported_on_cpu(regions: Regions, *tensors: Tensor) -> str | None:
    if not HAS_NUMBA:
        return "the package numba is not installed (pip install 'whatwhere[cpu]')"
    if any(
        tensor.dtype not in (torch.float32, torch.float64) or tensor.dtype != tensors[0].dtype for tensor in tensors
    ):
        return f"on the CPU the kernels support float32 and float64, one for all tensors, not {tensors[0].dtype}"
    if torch.compiler.is_compiling():
        return "torch.compile fuses the plain form on the CPU"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a torch dispatch mode is active"
    return None


def kernels(maps: Tensor) -> ModuleType:
    """The module with the kernels for the device of a tensor: its `launch` runs one of the operations."""
    return importlib.import_module("whatwhere.nn.triton_pooling" if maps.is_cuda else "whatwhere.nn.cpu_pooling")


def _transformed(*tensors: Tensor) -> bool:
    return torch._C._are_functorch_transforms_active() or any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    )


# --- for callers: with Regions and PoolingParams


def fit_pool(z: Tensor, regions: Regions, fit: MomentFit, return_where: bool) -> tuple[Tensor, PoolingParams | None]:
    p, mu, gamma = _fit_pool(z, geometry(regions), [fit.gamma_min, fit.gamma_max, fit.power], return_where)
    return p, PoolingParams(mu, gamma) if return_where else None


def pool(z: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    mu, gamma = _expanded(where, z, regions)
    return _pool(z, mu, gamma, geometry(regions))


def unpool(p: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    mu, gamma = _expanded(where, p, regions)
    return _unpool(p, mu, gamma, geometry(regions))


def _expanded(where: PoolingParams, maps: Tensor, regions: Regions) -> tuple[Tensor, Tensor]:
    shape = (maps.shape[0], 2, *regions.grid)
    mu, gamma = (theta if theta.shape == shape else theta.expand(shape) for theta in (where.mu, where.gamma))
    return mu, gamma


def geometry(regions: Regions) -> list[int]:
    of = (regions.size, regions.stride, regions.padding, regions.shape, regions.grid)
    return [number for axes in of for number in axes[1:]]


def regions_from(geometry: Geometry, channels: int) -> Regions:
    sy, sx, ty, tx, py, px, height, width, *grid = geometry
    floor = Regions((channels, height, width), (1, sy, sx), (1, ty, tx), (0, py, px), ceil=False)
    return floor if list(floor.grid[1:]) == grid else replace(floor, ceil=True)


# --- the operators; `fit` is γ_min, γ_max and the power


def _new(like: Tensor, size: Sequence[int], axes: tuple[int, ...] = (), dtype: torch.dtype | None = None) -> Tensor:
    """Uninitialised maps [N, C, *size], or variables [N, *axes, C, *size], in the layout of `like`."""
    n, c = like.shape[:2]
    if plain.channels_last(like):
        return like.new_empty(n, *axes, *size, c, dtype=dtype).movedim(-1, -3)
    return like.new_empty(n, *axes, c, *size, dtype=dtype)


def _new_fit_pool(z: Tensor, geometry: Geometry, fit: Sequence[float], return_where: bool) -> Any:
    mu, gamma = (_new(z, geometry[GRID], (2,)) if return_where else z.new_empty(0) for _ in range(2))
    return _new(z, geometry[GRID]), mu, gamma


def _fit_pool_kernel(
    z: Tensor, geometry: Sequence[int], fit: Sequence[float], return_where: bool
) -> tuple[Tensor, Tensor, Tensor]:
    p, mu, gamma = _new_fit_pool(z, geometry, fit, return_where)
    kernels(z).launch("fit_pool", geometry, (z, *NONE, None, p, mu, gamma), fit)
    return p, mu, gamma


def _fit_pool_backward_kernel(
    z: Tensor, d_p: Tensor, d_mu: Tensor | None, d_gamma: Tensor | None, geometry: Sequence[int], fit: Sequence[float]
) -> Tensor:
    d_z = _new(z, z.shape[2:])
    kernels(z).launch("fit_pool_backward", geometry, (z, d_p, d_mu, d_gamma, d_z, *NONE), fit)
    return d_z


def _pool_kernel(z: Tensor, mu: Tensor, gamma: Tensor, geometry: Sequence[int]) -> Tensor:
    p = _new(z, geometry[GRID])
    kernels(z).launch("pool", geometry, (z, None, mu, gamma, None, p, None, None))
    return p


def _unpool_kernel(p: Tensor, mu: Tensor, gamma: Tensor, geometry: Sequence[int]) -> Tensor:
    z = _new(p, geometry[SHAPE])
    kernels(p).launch("unpool", geometry, (None, p, mu, gamma, z, *NONE))
    return z


def _new_slopes(z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, geometry: Geometry) -> Any:
    d_mu, d_gamma = (_new(p, geometry[GRID], (2,), theta.dtype) for theta in (mu, gamma))
    return _new(p, geometry[GRID]), d_mu, d_gamma


def _slopes_kernel(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, geometry: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    d_p, d_mu, d_gamma = _new_slopes(z, p, mu, gamma, geometry)
    kernels(z).launch("slopes", geometry, (z, p, mu, gamma, None, d_p, d_mu, d_gamma))
    return d_p, d_mu, d_gamma


# --- their derivatives


def _fit_pool_vjp(ctx: Any, d_p: Tensor | None, d_mu: Tensor | None, d_gamma: Tensor | None) -> Any:
    (z,), (geometry, fit, _) = ctx.saved_tensors, ctx.settings
    if torch.is_grad_enabled():

        def fit_pool(z: Tensor) -> tuple[Tensor, ...]:
            settings = MomentFit(fit[0], fit[1], int(fit[2]))
            p, where = plain.fit_pool(z, regions_from(geometry, z.shape[1]), settings)
            return p, where.mu, where.gamma

        return *_plain_vjp(fit_pool, [z], [d_p, d_mu, d_gamma]), None, None, None
    if d_p is None:
        d_p = z.new_zeros(*z.shape[:2], *geometry[GRID])
    return _fit_pool_backward(z, d_p, d_mu, d_gamma, geometry, fit), None, None, None


def _pool_vjp(ctx: Any, d_p: Tensor) -> Any:
    (z, mu, gamma), (geometry,) = ctx.saved_tensors, ctx.settings
    if torch.is_grad_enabled():
        return *_plain_vjp(_plainly(plain.pool, geometry), ctx.saved_tensors, [d_p]), None
    needed = ctx.needs_input_grad
    d_z = _unpool(d_p, mu, gamma, geometry) if needed[0] else None
    _, d_mu, d_gamma = _slopes(z, d_p, mu, gamma, geometry) if needed[1] or needed[2] else (None, None, None)
    return d_z, d_mu, d_gamma, None


def _unpool_vjp(ctx: Any, d_z: Tensor) -> Any:
    (p, mu, gamma), (geometry,) = ctx.saved_tensors, ctx.settings
    if torch.is_grad_enabled():
        return *_plain_vjp(_plainly(plain.unpool, geometry), ctx.saved_tensors, [d_z]), None
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
        return *_slopes(d_z, p, mu, gamma, geometry), None
    return _pool(d_z, mu, gamma, geometry), None, None, None


def _plainly(function: Callable[..., Tensor], geometry: Geometry) -> Callable[..., tuple[Tensor]]:
    """`plain.pool` or `plain.unpool` as a function of tensors."""
    return lambda x, mu, gamma: (function(x, PoolingParams(mu, gamma), regions_from(geometry, x.shape[1])),)


def _plain_vjp(
    function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> Sequence[Tensor | None]:
    """The vector-Jacobian product of a function in plain PyTorch, which can be differentiated again."""
    # views: an input that depends on another one counts as independent, and all stay connected to the graph
    views = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs]
    given = [(y, d) for y, d in zip(function(*views), gradients, strict=True) if d is not None]
    if not given:
        return [None] * len(views)
    outputs, products = [y for y, _ in given], [d for _, d in given]
    return torch.autograd.grad(outputs, views, products, create_graph=True, allow_unused=True)


class Operator:
    """A kernel that can be called, traced and differentiated.

    A registered operator can be traced, compiled and checked, but a call through the dispatcher takes longer than a
    small kernel runs. So if nothing is traced, the kernel and its derivative are called directly.

    kernel   the function, with type annotations for all arguments
    fake     returns uninitialised outputs of the same shapes
    vjp      vjp(ctx, *gradients) returns the gradients of the inputs; None: has no derivative
    tensors  how many inputs are ctx.saved_tensors; the others are ctx.settings
    """

    def __init__(
        self,
        name: str,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        vjp: Callable[..., Any] | None = None,
        tensors: int = 0,
    ) -> None:
        self.kernel = kernel
        self.registered = torch.library.custom_op(
            f"whatwhere::{name}", kernel, mutates_args=(), device_types=("cpu", "cuda")
        )
        self.registered.register_fake(fake)
        self.function: Any = None
        if vjp is None:
            return

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            # some of several outputs may be unused: their gradients stay None instead of becoming tensors of zeros
            ctx.set_materialize_grads(isinstance(output, Tensor))
            ctx.save_for_backward(*inputs[:tensors])
            ctx.settings = inputs[tensors:]

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = kernel(*inputs)
            setup_context(ctx, inputs, output)
            return output

        self.registered.register_autograd(vjp, setup_context=setup_context)
        parts = {"forward": staticmethod(forward), "backward": staticmethod(vjp)}
        self.function = type(name, (torch.autograd.Function,), parts)

    def __call__(self, *inputs: Any) -> Any:
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if is_traced() or any(type(x) not in (Tensor, nn.Parameter) for x in tensors):
            return self.registered(*inputs)
        if self.function and torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            return self.function.apply(*inputs)
        return self.kernel(*inputs)


def is_traced() -> bool:
    """Whether the operators that run are recorded or replaced."""
    return torch.compiler.is_compiling() or is_tracing() or torch._C._len_torch_dispatch_stack() > 0


_fit_pool = Operator("gaussian_fit_pool", _fit_pool_kernel, _new_fit_pool, _fit_pool_vjp, tensors=1)
_pool = Operator("gaussian_pool", _pool_kernel, lambda z, mu, gamma, g: _new(z, g[GRID]), _pool_vjp, tensors=3)
_unpool = Operator("gaussian_unpool", _unpool_kernel, lambda p, mu, gamma, g: _new(p, g[SHAPE]), _unpool_vjp, tensors=3)
_fit_pool_backward = Operator(
    "gaussian_fit_pool_backward", _fit_pool_backward_kernel, lambda z, *_: _new(z, z.shape[2:])
)
_slopes = Operator("gaussian_slopes", _slopes_kernel, _new_slopes)
