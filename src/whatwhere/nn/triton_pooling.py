"""Fused kernels of Gaussian pooling for CUDA, one region per thread, and their launch.

Everything is computed in float32, or in float64 for float64 maps. If regions overlap, `triton_overlap` adds up their
contributions.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.nn import plain, triton_overlap
from whatwhere.nn.triton_region import (
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

BLOCK = 256  # regions of one program
WIDE = 2**31  # number of elements from which offsets need 64 bits


@triton.jit
def pooling_kernel(read, written, sizes, bounds, RULE: tl.constexpr, BLOCK: tl.constexpr):
    """The operation of the rule for BLOCK regions; where it writes z, these do not overlap."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if RULE.wide:
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = place(index, sizes.C, sizes.h, sizes.w, RULE.channels_last)
    n, c, y, x = at
    top, left, live = y * sizes.stride_y - sizes.padding_y, x * sizes.stride_x - sizes.padding_x, n < sizes.N
    zn, zc, zy, zx = read.z_strides
    r = Region(read.z + (n * zn + c * zc), top, left, live, sizes.H, sizes.W, zy, zx)
    if RULE.operation == "fit_pool":
        _, _, theta, _ = fit(r, bounds, RULE)
        tl.store(written.p + map_offset(written.p_strides, at), sums(r, theta, RULE)[0], mask=live)
        if RULE.mu:
            store_theta(written, at, theta, live)
    elif RULE.operation == "unpool":
        spread(written, r, at, load_values(read, at, live, RULE), RULE)
    elif RULE.operation == "fit_pool_backward":
        known, more = fit_slopes(r, load_values(read, at, live, RULE), bounds, RULE)
        store_gradient(written, r, at, known, more, RULE)
    else:
        p, mu_y, mu_x, g_y, g_x = load_values(read, at, live, RULE)
        pooled, slopes, _, _ = sums(r, (mu_y, mu_x, g_y, g_x), RULE)
        tl.store(written.p + map_offset(written.p_strides, at), pooled, mask=live)
        if RULE.operation == "slopes":
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
    operation: str, geometry: Sequence[int], tensors: Sequence[Tensor | None], fit: Sequence[float] = (0.0, 0.0, 2)
) -> None:
    """Run an operation on all regions; see `fused` for what it is given.

    tensors  z, p, μ and γ that are read, and then those that are written
    """
    z, p = (next(t for t in (tensors[i], tensors[4 + i]) if t is not None) for i in range(2))
    if p.numel() == 0:
        return
    theta = tensors[6:] if operation == "fit_pool" else tensors[2:4]
    given = tuple(tensor is not None and tensor.dim() > 1 for tensor in theta)
    rule, sizes, overlap, gaps = describe(
        operation, tuple(geometry), tuple(z.shape[:2]), plain.channels_last(z), given, int(fit[2])
    )
    read, written, bounds = maps_of(tensors[:4], z), maps_of(tensors[4:], z), (fit[0], fit[1])
    if overlap:
        return triton_overlap.launch(read, written, sizes, bounds, rule)
    if gaps:
        written.z.zero_()
    with torch.cuda.device_of(z):
        programs = (triton.cdiv(p.numel(), BLOCK),)
        pooling_kernel[programs](read, written, sizes, bounds, RULE=rule, BLOCK=BLOCK)


@lru_cache(256)
def describe(
    operation: str,
    geometry: tuple[int, ...],
    channels: tuple[int, int],
    channels_last: bool,
    given: tuple[bool, bool],
    power: int,
) -> tuple[Rule, Sizes, bool, bool]:
    """What a kernel is compiled for, its sizes, whether it adds overlapping regions up, and whether z has gaps."""
    size, stride, before, shape, grid = ((geometry[i], geometry[i + 1]) for i in range(0, 10, 2))
    axes = list(zip(size, stride, before, shape, grid, strict=True))
    inside = all(b == 0 and (g - 1) * t + s <= n for s, t, b, n, g in axes)
    writes_z = operation in ("unpool", "fit_pool_backward")
    overlap = writes_z and any(t < s for s, t, *_ in axes)
    gaps = writes_z and any(t > s or (g - 1) * t + s - b < n for s, t, b, n, g in axes)
    elements = channels[0] * channels[1] * max(shape[0] * shape[1], 4 * grid[0] * grid[1])
    rule = Rule(operation, size, power, inside, channels_last, *given, wide=elements >= WIDE)
    return rule, Sizes._make((*channels, *shape, *grid, *stride, *before)), overlap, gaps


def maps_of(tensors: Sequence[Tensor | None], instead: Tensor) -> Maps:
    """z, p, μ and γ with their strides; what is not given is another tensor, which is not used."""
    known = [instead if tensor is None or tensor.dim() == 1 else tensor for tensor in tensors]
    strides = [t.stride() if t.dim() == dim else (0,) * dim for t, dim in zip(known, (4, 4, 5, 5), strict=True)]
    return Maps(*known, *strides)
