"""Gaussian pooling and unpooling as functions.

Along each axis of a region, with coordinates x centred in it, a Gaussian (μ, γ) gives the weights

    q = softmax_i(-γ (x_i - μ)² / 2),   w = √q,   w(i) = w_y w_x,   Σ w² = 1

and    pool: p(j) = Σ_i w(i) z(i),      unpool: z(i) = Σ_j w(i) p(j)       (i element, j region)

Positions outside the map have no weight: weights are normalised over the elements that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.fx
from torch import Tensor

from whatwhere.errors import EngineError, SpecError, plural
from whatwhere.latents import PoolingParams
from whatwhere.nn import fused, plain
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

Size2 = int | Sequence[int]
Form = Literal["auto", "plain", "fused"]


def gaussian_pool2d(
    input: Tensor,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    *,
    dilation: Size2 = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    where: PoolingParams | None = None,
    fit: MomentFit = MomentFit(),
    return_where: bool = False,
    form: Form = "auto",
) -> Any:
    """Pool every region with its Gaussian:  p(j) = Σ_i w(i) z(i).

    Parameters
    ----------
    input
        z [N, C, H, W] or [C, H, W], of any sign
    kernel_size, stride, padding, ceil_mode
        as in `torch.nn.functional.max_pool2d`
    dilation, return_indices
        1 and False, the defaults of max pooling; nothing else is supported
    where
        the Gaussians, μ and γ broadcastable to [N, 2, C, h, w] (rows, columns); None: fitted to the
        moments of every region, and gradients flow through the fit
    fit
        bounds of γ and the power of |z|; for where=None only
    return_where
        return (p, where): the Gaussians as well, μ and γ [N, 2, C, h, w] in the input's dtype
    form
        'plain' PyTorch, 'fused' kernels, or 'auto': fused where they are supported

    Returns
    -------
    Any
        p [N, C, h, w], or [C, h, w]; h and w as in `torch.nn.functional.max_pool2d`

    A region that holds a NaN or an infinity has no Gaussian: its p and μ are NaN, where max
    pooling would return the infinity. A region whose largest element is below the normal numbers
    of float32 (1.2e-38) counts as empty.

    Examples
    --------
    >>> z = torch.tensor([[[[0.0, 0.0, 1.0, 1.0], [0.0, 3.0, 1.0, 1.0]]]])
    >>> gaussian_pool2d(z, 2)  # 3: all in one element; 2 = Σ z / √4: all elements equal
    tensor([[[[3.0000, 2.0000]]]])
    >>> p, where = gaussian_pool2d(torch.tensor([[[[0.0, 0.0], [0.0, 3.0]]]]), 2, return_where=True)
    >>> where.mu.flatten(), where.gamma.flatten()  # below and right of the centre, γ at its bound
    (tensor([0.5000, 0.5000]), tensor([100., 100.]))
    """
    require_max_pooling_defaults(dilation, return_indices)
    if input.dim() == 3:
        found = gaussian_pool2d(
            input[None],
            kernel_size,
            stride,
            padding,
            ceil_mode=ceil_mode,
            where=None if where is None else _batched(where),
            fit=fit,
            return_where=return_where,
            form=form,
        )
        return (found[0][0], found[1].map(lambda theta: theta[0])) if return_where else found[0]
    regions = _regions_of(input, kernel_size, stride, padding, ceil_mode)
    if where is None:
        p, where = _form(form, regions, input).fit_pool(input, regions, fit, return_where)
    else:
        _require_gaussians(where, input, regions)
        p = _form(form, regions, input, where.mu, where.gamma).pool(input, where, regions)
        where = where.map(lambda theta: theta.expand(p.shape[0], 2, *p.shape[1:]))
    return (p, where) if return_where else p


def gaussian_unpool2d(
    input: Tensor,
    where: PoolingParams,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    output_size: Sequence[int] | None = None,
    *,
    form: Form = "auto",
) -> Tensor:
    """Spread every region's feature over its elements:  z(i) = Σ_j w(i) p(j), the adjoint of
    `gaussian_pool2d`.

    Parameters
    ----------
    input
        p [N, C, h, w] or [C, h, w]
    where
        the Gaussians, as in `gaussian_pool2d`
    kernel_size, stride, padding, form
        as in the pooling
    output_size
        the height and width of z (or its full shape); None: the smallest map that the regions fill

    Returns
    -------
    Tensor
        z [N, C, H, W], or [C, H, W]; zero outside all regions

    If regions do not overlap, pooling inverts unpooling:

    Examples
    --------
    >>> p, where = gaussian_pool2d(torch.randn(2, 3, 6, 8), 2, return_where=True)
    >>> z = gaussian_unpool2d(p, where, 2)
    >>> torch.allclose(gaussian_pool2d(z, 2, where=where), p, atol=1e-6)
    True
    """
    if input.dim() == 3:
        return gaussian_unpool2d(
            input[None], _batched(where), kernel_size, stride, padding, output_size, form=form
        )[0]
    regions = _regions_for_unpooling(input, kernel_size, stride, padding, output_size)
    _require_gaussians(where, input, regions)
    return _form(form, regions, input, where.mu, where.gamma).unpool(input, where, regions)


def learned_gaussians(input: Tensor, mu: Tensor, log_gamma: Tensor) -> PoolingParams:
    """Return one Gaussian for every channel, from parameters [2, C], for maps [N, C, H, W] or [C,
    H, W].

    Returns μ and γ [1, 2, C, 1, 1], or [2, C, 1, 1] for a single image.
    """
    if input.dim() in (3, 4) and input.shape[-3] != mu.shape[1]:
        raise SpecError(
            f"Got an input of {plural(input.shape[-3], 'channel')}; expected {mu.shape[1]}, the"
            " value of `channels`."
        )
    theta = PoolingParams(mu, log_gamma.exp()).map(lambda tensor: tensor[:, :, None, None])
    return theta.map(lambda tensor: tensor[None]) if input.dim() == 4 else theta


def as_maps(signals: Tensor) -> Tensor:
    """Return signals [N, C, T] or [C, T] as maps of height 1."""
    if signals.dim() not in (2, 3):
        raise SpecError(
            f"Got a tensor of shape {tuple(signals.shape)}; expected signals [N, C, T] or [C, T]."
        )
    return signals.unsqueeze(-2)


def with_height(where: PoolingParams) -> PoolingParams:
    """μ and γ [..., C, t] of samples with μ and γ of rows, which have one element: [..., 2, C, 1,
    t]."""
    _require_params(where)
    return where.map(lambda theta: torch.stack([torch.zeros_like(theta), theta], -3).unsqueeze(-2))


def without_height(where: PoolingParams) -> PoolingParams:
    """Return the inverse of `with_height`."""
    return where.map(lambda theta: theta.select(-4, 1).squeeze(-2))


def size_with_height(samples: int | Sequence[int]) -> tuple[int, int]:
    """Return the size of a signal, a number of samples or its shape, as a map of height 1."""
    return (1, samples if isinstance(samples, int) else samples[-1])


# torch.fx records a call of these as one node; what they check depends on values it does not have
for _name in (
    "gaussian_pool2d",
    "gaussian_unpool2d",
    "learned_gaussians",
    "as_maps",
    "with_height",
    "without_height",
    "size_with_height",
):
    torch.fx.wrap(_name)


def require_max_pooling_defaults(dilation: Size2, return_indices: bool) -> None:
    """Raise a SpecError for options of max pooling that Gaussian pooling does not have."""
    if _pair(dilation, "dilation") != (1, 1):
        raise SpecError(
            f"Got dilation = {dilation!r}; expected 1. Gaussian pooling does not support gaps"
            " between the elements of a region."
        )
    if return_indices:
        raise SpecError(
            "Got return_indices = True; Gaussian pooling has no indices. Use return_where=True,"
            " which returns the Gaussians for unpooling."
        )


def _regions_of(
    z: Tensor, kernel_size: Size2, stride: Size2 | None, padding: Size2, ceil_mode: bool
) -> Regions:
    """Return the regions of a map, by the rules of PyTorch's pooling layers."""
    _require_maps(z, "pooled")
    size, step, before = _geometry(kernel_size, stride, padding)
    channels, height, width = z.shape[1:]
    regions = Regions((channels, height, width), (1, *size), (1, *step), (0, *before), ceil_mode)
    for n, s, p in zip((height, width), size, before, strict=True):
        if n == 0 or (not ceil_mode and n + 2 * p < s):
            raise SpecError(
                f"No region of {size} fits into a map of {height} × {width} with a padding of"
                f" {before}. Give a larger map, a smaller kernel or ceil_mode=True."
            )
    return regions


def _regions_for_unpooling(
    p: Tensor,
    kernel_size: Size2,
    stride: Size2 | None,
    padding: Size2,
    output_size: Sequence[int] | None,
) -> Regions:
    """Return the regions of a map of `output_size` that has one feature of p per region."""
    _require_maps(p, "unpooled")
    size, step, before = _geometry(kernel_size, stride, padding)
    grid = p.shape[2:]
    if output_size is None:
        output_size = [
            (g - 1) * t + s - 2 * b for g, s, t, b in zip(grid, size, step, before, strict=True)
        ]
    height, width = output_size[-2:]
    for ceil_mode in (False, True):
        regions = Regions(
            (p.shape[1], height, width), (1, *size), (1, *step), (0, *before), ceil_mode
        )
        if regions.grid[1:] == tuple(grid):
            return regions
    raise SpecError(
        f"output_size {height} × {width} does not pool to {grid[0]} × {grid[1]} with kernel"
        f" {size}, stride {step} and padding {before}. Give the size of the map before pooling."
    )


def _require_maps(tensor: Tensor, purpose: str) -> None:
    if tensor.dim() != 4 or not tensor.is_floating_point():
        raise SpecError(
            f"A tensor of shape {tuple(tensor.shape)} and {tensor.dtype} cannot be {purpose}. Give"
            " maps [N, C, H, W] or [C, H, W] in a floating dtype."
        )


def _geometry(
    kernel_size: Size2, stride: Size2 | None, padding: Size2
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    size = _pair(kernel_size, "kernel_size")
    step = size if stride is None else _pair(stride, "stride")
    before = _pair(padding, "padding")
    if min(size) < 1 or min(step) < 1:
        raise SpecError(f"Got kernel_size {size} and stride {step}; expected at least 1.")
    if any(b < 0 or 2 * b > s for b, s in zip(before, size, strict=True)):
        raise SpecError(f"Got padding {before}; expected 0 to half of kernel_size {size}.")
    return size, step, before


def _pair(value: Size2, name: str) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if (
        not isinstance(value, (tuple, list))  # torch 2.7 cannot trace a union
        or len(value) != 2
        or not all(isinstance(side, int) for side in value)
    ):
        raise SpecError(
            f"Got {name} = {value!r}; expected an integer, or one for rows and one for columns."
        )
    return value[0], value[1]


def _require_params(where: object) -> None:
    """Raise a SpecError for anything but Gaussians, such as the indices of max pooling."""
    if not isinstance(where, PoolingParams):
        raise SpecError(
            f"Got where of type {type(where).__name__}; expected PoolingParams(mu, gamma), as"
            " pooling with return_where=True returns them."
        )


def _batched(where: PoolingParams) -> PoolingParams:
    _require_params(where)
    return where.map(lambda theta: theta[None])


def _require_gaussians(where: PoolingParams, maps: Tensor, regions: Regions) -> None:
    """Raise a SpecError for pooling variables that do not broadcast to [N, 2, C, h, w]."""
    _require_params(where)
    shape = (maps.shape[0], 2, *regions.grid)
    for name, theta in (("mu", where.mu), ("gamma", where.gamma)):
        if theta.dim() != 5 or any(
            have != 1 and have != want for have, want in zip(theta.shape, shape, strict=True)
        ):
            raise SpecError(
                f"Got where.{name} of shape {tuple(theta.shape)}; expected {shape} (N, rows and"
                " columns, C, h, w), or 1 along axes that share a Gaussian."
            )


def _form(form: Form, regions: Regions, *tensors: Tensor) -> Any:
    """Return the module to run; 'auto' uses the fused kernels wherever they are supported."""
    if form not in ("auto", "plain", "fused"):
        raise SpecError(f"Got form = {form!r}; expected 'auto', 'plain' or 'fused'.")
    unsupported_reason = form != "plain" and fused.unsupported_reason(regions, *tensors)
    if form == "fused" and unsupported_reason:
        raise EngineError(
            f"The fused kernels do not support this: {unsupported_reason}. Use form='plain'."
        )
    return plain if form == "plain" or unsupported_reason else fused
