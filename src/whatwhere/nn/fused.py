"""Gaussian pooling by fused kernels, one pass over memory forward and one backward, with its
derivatives.

There are five operations; two of them compute derivatives. With ⟨z, U p⟩ = Σ_j p(j) Σ_i w(i) z(i):

    fit_pool(z) → p, μ, γ                         pool(z, μ, γ) → p         unpool(p, μ, γ) → z
    fit_pool_backward(z, ∇p, ∇μ, ∇γ) → ∇z         slopes(z, p, μ, γ) → ∂⟨z, U p⟩ / ∂(p, μ, γ)

Only the inputs are saved for the backward pass: fitting a region's Gaussian again costs less than
reading it. A derivative that is differentiated again uses the plain form.
"""

import importlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._functorch import TransformType
from torch.autograd import forward_ad
from torch.autograd.functional import vjp

from whatwhere.engines.triton.engine import compiler_reason
from whatwhere.latents import PoolingParams
from whatwhere.nn import plain
from whatwhere.nn.operators import DEFAULT_FIT, Context, Operator, Settings
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

LARGEST_KERNEL = 64  # elements: the loops of the Triton kernels over a region are unrolled
TRITON_REASON = compiler_reason()
HAS_NUMBA = find_spec("numba") is not None
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Maps(NamedTuple):
    """The maps that an operation reads or writes: z [N, C, H, W], p [N, C, h, w], μ and γ [N, 2, C,
    h, w].

    Each is a tensor, or None where the operation does not use it.
    """

    z: Tensor | None = None
    p: Tensor | None = None
    mu: Tensor | None = None
    gamma: Tensor | None = None


def unsupported_reason(regions: Regions, *tensors: Tensor) -> str | None:
    """Return why the kernels do not support this; None if they do."""
    if plain.is_exporting():
        return "an exported program contains plain operators only"
    first = tensors[0]
    if any(tensor.device != first.device for tensor in tensors):
        return "the tensors are on several devices"
    if first.device.type not in ("cpu", "cuda"):
        return f"the tensors are on {first.device.type}, but the kernels run on cuda and cpu"
    if any(tensor.dtype not in DTYPES for tensor in tensors):
        return f"the kernels support {', '.join(map(str, DTYPES))}, not {first.dtype}"
    if is_transformed(*tensors):
        return "grad and jvp of torch.func and forward-mode derivatives need the plain form"
    if first.is_cuda and TRITON_REASON is not None:
        return TRITON_REASON
    if not first.is_cuda and not HAS_NUMBA:
        return "the compiler of the kernels is not installed (pip install numba)"
    if first.is_cuda and regions.size[1] * regions.size[2] > LARGEST_KERNEL:
        return f"a region has more than {LARGEST_KERNEL} elements"
    return None


def is_transformed(*tensors: Tensor) -> bool:
    """Tell whether a transform is active that the operators have no rule for: every one but
    vmap."""
    if torch._C._are_functorch_transforms_active():
        if torch.compiler.is_compiling():
            return True
        stack = torch._C._functorch.get_interpreter_stack() or ()
        return any(interpreter.key() != TransformType.Vmap for interpreter in stack)
    if torch.compiler.is_compiling():
        return False
    if any(type(tensor) not in (Tensor, nn.Parameter) for tensor in tensors):
        return True
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


# --- for callers: with Regions and PoolingParams


def fit_pool(
    z: Tensor, regions: Regions, fit: MomentFit, return_where: bool
) -> tuple[Tensor, PoolingParams | None]:
    if torch.compiler.is_compiling() and z.is_cuda and not return_where:
        from whatwhere.nn import triton_pairs

        if triton_pairs.fills(regions) and triton_pairs.holds(z):
            bounds = float(fit.gamma_min), float(fit.gamma_max)
            return triton_pairs.pair_pool(z, *bounds, int(fit.power)), None
    p, mu, gamma = _fit_pool(z, settings=Settings(regions, fit, return_where))
    return p, PoolingParams(mu, gamma) if return_where else None


def pool(z: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    return _pool(z, *_expanded(where, z, regions), settings=Settings(regions, DEFAULT_FIT))


def unpool(p: Tensor, where: PoolingParams, regions: Regions) -> Tensor:
    return _unpool(p, *_expanded(where, p, regions), settings=Settings(regions, DEFAULT_FIT))


def _expanded(where: PoolingParams, maps: Tensor, regions: Regions) -> list[Tensor]:
    return [theta.expand(maps.shape[0], 2, *regions.grid) for theta in (where.mu, where.gamma)]


# --- memory for results


def _new(
    like: Tensor, shape: Sequence[int], axes: Sequence[int] = (), dtype: torch.dtype | None = None
) -> Tensor:
    """Uninitialised maps [N, C, …], or variables [N, *axes, C, …], in the layout of `like`."""
    if plain.channels_last(like):
        channels_last = like.new_empty(like.shape[0], *axes, *shape[1:], shape[0], dtype=dtype)
        return channels_last.movedim(-1, -3)
    return like.new_empty(like.shape[0], *axes, *shape, dtype=dtype)


def _new_fitted(z: Tensor, settings: Settings) -> tuple[Tensor, Tensor | None, Tensor | None]:
    grid = settings.regions.grid
    p = _new(z, grid)
    if not settings.return_where:
        return p, None, None
    return p, _new(z, grid, (2,)), _new(z, grid, (2,))


def _new_pooled(z: Tensor, *tensors_and_settings: Any) -> Tensor:
    return _new(z, tensors_and_settings[-1].regions.grid)


def _new_map(like: Tensor, *tensors_and_settings: Any) -> Tensor:
    return _new(like, tensors_and_settings[-1].regions.shape)


def _new_slopes(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    grid = settings.regions.grid
    return _new(p, grid), _new(p, grid, (2,), mu.dtype), _new(p, grid, (2,), gamma.dtype)


# --- the kernels


def _run_fit_pool(z: Tensor, settings: Settings) -> tuple[Tensor, Tensor | None, Tensor | None]:
    p, mu, gamma = _new_fitted(z, settings)
    launch("fit_pool", settings, Maps(z), Maps(None, p, mu, gamma))
    return p, mu, gamma


def _run_fit_pool_backward(
    z: Tensor, d_p: Tensor, d_mu: Tensor | None, d_gamma: Tensor | None, settings: Settings
) -> Tensor:
    d_z = _new_map(z, settings)
    launch("fit_pool_backward", settings, Maps(z, d_p, d_mu, d_gamma), Maps(d_z))
    return d_z


def _run_pool(z: Tensor, mu: Tensor, gamma: Tensor, settings: Settings) -> Tensor:
    p = _new_pooled(z, settings)
    launch("pool", settings, Maps(z, None, mu, gamma), Maps(p=p))
    return p


def _run_unpool(p: Tensor, mu: Tensor, gamma: Tensor, settings: Settings) -> Tensor:
    z = _new_map(p, settings)
    launch("unpool", settings, Maps(None, p, mu, gamma), Maps(z))
    return z


def _run_slopes(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    slopes = _new_slopes(z, p, mu, gamma, settings)
    launch("slopes", settings, Maps(z, p, mu, gamma), Maps(None, *slopes))
    return slopes


def launch(operation: str, settings: Settings, read: Maps, written: Maps) -> None:
    """Run an operation on all regions."""
    given = next(tensor for tensor in read if tensor is not None)
    if given.numel() > 0:
        kernels(given).launch(operation, settings.regions, read, written, settings.fit)


def kernels(maps: Tensor) -> ModuleType:
    """Return the module with the kernels for the device of a tensor."""
    return importlib.import_module(
        "whatwhere.nn.triton_pooling" if maps.is_cuda else "whatwhere.nn.cpu_pooling"
    )


# --- derivatives; one that is differentiated again uses the plain form


def _fit_pool_vjp(
    ctx: Context, d_p: Tensor | None, d_mu: Tensor | None, d_gamma: Tensor | None
) -> tuple[Tensor]:
    (z,) = ctx.saved_tensors
    settings: Settings = ctx.settings
    regions = settings.regions
    if d_p is None:
        d_p = z.new_zeros(z.shape[0], *regions.grid)
    # both or none: the kernels know one case only
    if torch.is_grad_enabled() or d_mu is not None or d_gamma is not None:
        zeros = z.new_zeros(z.shape[0], 2, *regions.grid)
        d_mu = zeros if d_mu is None else d_mu
        d_gamma = zeros if d_gamma is None else d_gamma
    if not torch.is_grad_enabled():
        return (_fit_pool_backward(z, d_p, d_mu, d_gamma, settings=settings),)

    def fit_pool(z: Tensor) -> tuple[Tensor, ...]:
        p, where = plain.fit_pool(z, regions, settings.fit)
        assert where is not None
        return p, where.mu, where.gamma

    return (vjp(fit_pool, z, (d_p, d_mu, d_gamma), create_graph=True)[1],)


def _pool_vjp(ctx: Context, d_p: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        return _plain_vjp(plain.pool, ctx, d_p)
    z, mu, gamma = ctx.saved_tensors
    needs_z, needs_mu, needs_gamma = ctx.needs_input_grad[:3]
    d_z = None
    d_mu = None
    d_gamma = None
    if needs_z:
        d_z = _unpool(d_p, mu, gamma, settings=ctx.settings)
    if needs_mu or needs_gamma:
        _, d_mu, d_gamma = _slopes(z, d_p, mu, gamma, settings=ctx.settings)
    return d_z, d_mu, d_gamma


def _unpool_vjp(ctx: Context, d_z: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        return _plain_vjp(plain.unpool, ctx, d_z)
    p, mu, gamma = ctx.saved_tensors
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
        return _slopes(d_z, p, mu, gamma, settings=ctx.settings)
    return _pool(d_z, mu, gamma, settings=ctx.settings), None, None


def _plain_vjp(
    function: Callable[..., Tensor], ctx: Context, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of `plain.pool` or `plain.unpool`, which can be differentiated again."""

    def of_tensors(x: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        return function(x, PoolingParams(mu, gamma), ctx.settings.regions)

    return vjp(of_tensors, ctx.saved_tensors, gradient, create_graph=True)[1]


# --- the operators

_fit_pool = Operator(
    "gaussian_fit_pool",
    "(Tensor z) -> (Tensor, Tensor, Tensor)",
    _run_fit_pool,
    _new_fitted,
    _fit_pool_vjp,
)
_fit_pool_backward = Operator(
    "gaussian_fit_pool_backward",
    "(Tensor z, Tensor d_p, Tensor? d_mu, Tensor? d_gamma) -> Tensor",
    _run_fit_pool_backward,
    _new_map,
)
_pool = Operator(
    "gaussian_pool",
    "(Tensor z, Tensor mu, Tensor gamma) -> Tensor",
    _run_pool,
    _new_pooled,
    _pool_vjp,
)
_unpool = Operator(
    "gaussian_unpool",
    "(Tensor p, Tensor mu, Tensor gamma) -> Tensor",
    _run_unpool,
    _new_map,
    _unpool_vjp,
)
_slopes = Operator(
    "gaussian_slopes",
    "(Tensor z, Tensor p, Tensor mu, Tensor gamma) -> (Tensor, Tensor, Tensor)",
    _run_slopes,
    _new_slopes,
)
