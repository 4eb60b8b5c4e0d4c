"""Fused kernels of Gaussian pooling for CUDA, one region per thread, and their launch.

Everything is computed in float32, or in float64 for float64 maps. If regions overlap, `triton_overlap` adds up their
contributions.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# mypy: disable-error-code="assignment,var-annotated"
from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.nn import plain, triton_overlap
from whatwhere.nn.operator import FIT_POOL, FIT_POOL_BACKWARD, SLOPES, UNPOOL
from whatwhere.nn.triton_region import (
    BLOCK,
    Maps,
    Region,
    Rule,
    Sizes,
    element,
    fit,
    fit_slopes,
    gradient,
    inside,
    load_values,
    map_offset,
    norm,
    place,
    sums,
    theta_offset,
    weight,
)

WIDE = 2**31  # number of elements from which offsets need 64 bits
IS_FIT, IS_BACKWARD = tl.constexpr(FIT_POOL), tl.constexpr(FIT_POOL_BACKWARD)
IS_SLOPES, IS_UNPOOL = tl.constexpr(SLOPES), tl.constexpr(UNPOOL)


@triton.jit
def pooling_kernel(read, written, sizes, bounds, RULE: tl.constexpr):
    """The operation of the rule for BLOCK regions; where it writes z, these do not overlap."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if RULE.wide:
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = place(index, sizes.C, sizes.h, sizes.w, RULE.channels_last)
    n, c, y, x = at
    top, left, live = y * sizes.stride_y - sizes.padding_y, x * sizes.stride_x - sizes.padding_x, n < sizes.N
    zn, zc, zy, zx = read.z_strides
    r = Region(read.z + (n * zn + c * zc), top, left, live, sizes.H, sizes.W, zy, zx)
    if RULE.operation == IS_FIT:
        _, _, theta, _ = fit(r, bounds, RULE)
        tl.store(written.p + map_offset(written.p_strides, at), sums(r, theta, RULE)[0], mask=live)
        if RULE.mu:
            store_theta(written, at, theta, live)
    elif RULE.operation == IS_UNPOOL:
        spread(written, r, at, load_values(read, at, live, RULE), RULE)
    elif RULE.operation == IS_BACKWARD:
        known, more = fit_slopes(r, load_values(read, at, live, RULE), bounds, RULE)
        store_gradient(written, r, at, known, more, RULE)
    else:
        p, mu_y, mu_x, g_y, g_x = load_values(read, at, live, RULE)
        pooled, slopes, _, _ = sums(r, (mu_y, mu_x, g_y, g_x), RULE)
        tl.store(written.p + map_offset(written.p_strides, at), pooled, mask=live)
        if RULE.operation == IS_SLOPES:
            store_theta(written, at, (p * slopes[0], p * slopes[1], p * slopes[2], p * slopes[3]), live)


@triton.jit
def store_theta(maps, at, theta, live):
    """μ_y, μ_x, γ_y and γ_x of each region, or what belongs to them."""
    mu, gamma = maps.mu + theta_offset(maps.mu_strides, at), maps.gamma + theta_offset(maps.gamma_strides, at)
    tl.store(mu, theta[0], mask=live)
    tl.store(mu + maps.mu_strides[1], theta[1], mask=live)
    tl.store(gamma, theta[2], mask=live)
    tl.store(gamma + maps.gamma_strides[1], theta[3], mask=live)


@triton.jit
def spread(maps, r, at, values, RULE: tl.constexpr):
    """z(i) = w(i) p(j)."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    p, mu_y, mu_x, g_y, g_x = values
    axis_y, axis_x = (r.top, r.H, mu_y, g_y), (r.left, r.W, mu_x, g_x)
    norm_y, norm_x = norm(axis_y, KY, RULE.inside), norm(axis_x, KX, RULE.inside)
    zn, zc, zy, zx = maps.z_strides
    z = maps.z + (at[0] * zn + at[1] * zc + r.top * zy + r.left * zx)
    for i in tl.static_range(KY):
        row = p * weight(i, axis_y, norm_y, KY, RULE.inside)
        for j in tl.static_range(KX):
            share = row * weight(j, axis_x, norm_x, KX, RULE.inside)
            tl.store(z + i * zy + j * zx, share, mask=inside(r, i, j, RULE.inside))


@triton.jit
def store_gradient(maps, r, at, known, more, RULE: tl.constexpr):
    """∇z of the elements of each region."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    slopes = ()  # all before the first store: no element is loaded twice
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            v, y, x = element(r, i, j, RULE.inside), i - (KY - 1) / 2 - known[0], j - (KX - 1) / 2 - known[1]
            slopes += (gradient(v, y, x, known, more, RULE.power),)
    zn, zc, zy, zx = maps.z_strides
    z = maps.z + (at[0] * zn + at[1] * zc + r.top * zy + r.left * zx)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            tl.store(z + i * zy + j * zx, slopes[i * KX + j], mask=inside(r, i, j, RULE.inside))


# --- launching


def launch(
    operation: int, geometry: Sequence[int], tensors: Sequence[Tensor | None], fit: Sequence[float] = (0.0, 0.0, 2)
) -> None:
    """Run an operation on all regions; see `fused` for what it is given.

    tensors  z, p, μ and γ that are read, and then those that are written
    """
    z, p = (next(t for t in (tensors[i], tensors[4 + i]) if t is not None) for i in range(2))
    if p.numel() == 0:
        return
    size, stride, before = ((geometry[i], geometry[i + 1]) for i in (0, 2, 4))
    reach = [(g - 1) * t + s for g, s, t in zip(p.shape[2:], size, stride, strict=True)]
    theta = tensors[6:] if operation == FIT_POOL else tensors[2:4]
    rule = Rule(
        operation,
        size,
        power=int(fit[2]),
        inside=not any(before) and reach[0] <= z.shape[2] and reach[1] <= z.shape[3],
        channels_last=plain.channels_last(z),
        mu=theta[0] is not None and theta[0].dim() > 1,
        gamma=theta[1] is not None and theta[1].dim() > 1,
        wide=max(z.numel(), 4 * p.numel()) >= WIDE,
    )
    read, written = maps_of(tensors[:4], z), maps_of(tensors[4:], z)
    sizes = Sizes._make((*z.shape, *p.shape[2:], *stride, *before))
    bounds = (float(fit[0]), float(fit[1]))
    if operation in (UNPOOL, FIT_POOL_BACKWARD):
        if any(t < s for s, t in zip(size, stride, strict=True)):
            return triton_overlap.launch(read, written, sizes, bounds, rule)
        if any(t > s or end - b < n for n, s, t, b, end in zip(z.shape[2:], size, stride, before, reach, strict=True)):
            z_out = tensors[4]
            assert z_out is not None
            z_out.zero_()  # elements outside all regions
    with torch.cuda.device_of(z):
        pooling_kernel[(triton.cdiv(p.numel(), BLOCK.value),)](read, written, sizes, bounds, RULE=rule)


def maps_of(tensors: Sequence[Tensor | None], instead: Tensor) -> Maps:
    """z, p, μ and γ with their strides; what is not given is another tensor, which is not used."""
    known = [instead if tensor is None or tensor.dim() == 1 else tensor for tensor in tensors]
    strides = [t.stride() if t.dim() == dim else (0,) * dim for t, dim in zip(known, (4, 4, 5, 5), strict=True)]
    return Maps(*known, *strides)
