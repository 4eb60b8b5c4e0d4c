"""Fused kernels of Gaussian pooling for CUDA, one region per thread, and their launch.

Everything is computed in float32, or in float64 for float64 maps. If regions overlap, `triton_overlap` adds up their
contributions.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# mypy: disable-error-code="assignment,var-annotated"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.nn import plain, triton_overlap
from whatwhere.nn.triton_region import (
    Region,
    element,
    fit,
    fit_slopes,
    gradient,
    load_slopes,
    norm,
    place,
    precision,
    sums,
    weight,
)

BLOCK = 256  # regions of one program
WIDE = 2**31  # number of elements from which offsets need 64 bits


@triton.jit
def regions_here(N, C, h, w, TY, TX, PY, PX, CHANNELS_LAST: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """The regions of this program: image, channel, row and column in the pooled map, start in the map, in range."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WIDE:
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n, c, y, x = place(index, C, h, w, CHANNELS_LAST)
    return n, c, y, x, y * TY - PY, x * TX - PX, n < N


@triton.jit
def fit_pool_kernel(
    z, p, mu, gamma, N, C, H, W, h, w, TY, TX, PY, PX, lo, hi,
    zn, zc, zy, zx, pn, pc, py, px, tn, ta, tc, ty, tx,
    KY: tl.constexpr, KX: tl.constexpr, POWER: tl.constexpr, WHERE: tl.constexpr,
    INSIDE: tl.constexpr, CHANNELS_LAST: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    n, c, y, x, top, left, live = regions_here(N, C, h, w, TY, TX, PY, PX, CHANNELS_LAST, BLOCK, WIDE)
    z += n * zn + c * zc
    r = Region(z, top, left, live, H, W, zy, zx)
    _, _, mu_y, mu_x, v_y, v_x = fit(r, KY, KX, POWER, INSIDE, ACC)
    g_y, g_x = precision(v_y, lo, hi), precision(v_x, lo, hi)
    pooled = sums(r, (mu_y, mu_x, g_y, g_x), KY, KX, INSIDE, ACC)[0]
    tl.store(p + n * pn + c * pc + y * py + x * px, pooled, mask=live)
    if WHERE:
        at = n * tn + c * tc + y * ty + x * tx
        tl.store(mu + at, mu_y, mask=live)
        tl.store(mu + at + ta, mu_x, mask=live)
        tl.store(gamma + at, g_y, mask=live)
        tl.store(gamma + at + ta, g_x, mask=live)


@triton.jit
def pool_kernel(
    z, p, mu, gamma, d_p, d_mu, d_gamma, N, C, H, W, h, w, TY, TX, PY, PX,
    zn, zc, zy, zx, pn, pc, py, px, mn, ma, mc, my, mx, gn, ga, gc, gy, gx, qn, qc, qy, qx, tn, ta, tc, ty, tx,
    KY: tl.constexpr, KX: tl.constexpr, SLOPES: tl.constexpr,
    INSIDE: tl.constexpr, CHANNELS_LAST: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """P = Σ w z into d_p; with SLOPES also p ∂P/∂μ and p ∂P/∂γ into d_mu and d_gamma."""
    n, c, y, x, top, left, live = regions_here(N, C, h, w, TY, TX, PY, PX, CHANNELS_LAST, BLOCK, WIDE)
    z += n * zn + c * zc
    mu += n * mn + c * mc + y * my + x * mx
    gamma += n * gn + c * gc + y * gy + x * gx
    mu_y, mu_x = tl.load(mu, mask=live, other=0).to(ACC), tl.load(mu + ma, mask=live, other=0).to(ACC)
    g_y, g_x = tl.load(gamma, mask=live, other=0).to(ACC), tl.load(gamma + ga, mask=live, other=0).to(ACC)
    r = Region(z, top, left, live, H, W, zy, zx)
    pooled, by_theta, _, _ = sums(r, (mu_y, mu_x, g_y, g_x), KY, KX, INSIDE, ACC)
    tl.store(d_p + n * qn + c * qc + y * qy + x * qx, pooled, mask=live)
    if SLOPES:
        feature = tl.load(p + n * pn + c * pc + y * py + x * px, mask=live, other=0).to(ACC)
        at = n * tn + c * tc + y * ty + x * tx
        tl.store(d_mu + at, feature * by_theta[0], mask=live)
        tl.store(d_mu + at + ta, feature * by_theta[1], mask=live)
        tl.store(d_gamma + at, feature * by_theta[2], mask=live)
        tl.store(d_gamma + at + ta, feature * by_theta[3], mask=live)


@triton.jit
def unpool_kernel(
    p, mu, gamma, z, N, C, H, W, h, w, TY, TX, PY, PX,
    zn, zc, zy, zx, pn, pc, py, px, mn, ma, mc, my, mx, gn, ga, gc, gy, gx,
    KY: tl.constexpr, KX: tl.constexpr,
    INSIDE: tl.constexpr, CHANNELS_LAST: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """z(i) = w(i) p(j) where regions do not overlap."""
    n, c, y, x, top, left, live = regions_here(N, C, h, w, TY, TX, PY, PX, CHANNELS_LAST, BLOCK, WIDE)
    mu += n * mn + c * mc + y * my + x * mx
    gamma += n * gn + c * gc + y * gy + x * gx
    mu_y, mu_x = tl.load(mu, mask=live, other=0).to(ACC), tl.load(mu + ma, mask=live, other=0).to(ACC)
    g_y, g_x = tl.load(gamma, mask=live, other=0).to(ACC), tl.load(gamma + ga, mask=live, other=0).to(ACC)
    feature = tl.load(p + n * pn + c * pc + y * py + x * px, mask=live, other=0).to(ACC)
    axis_y, axis_x = (top, H, mu_y, g_y), (left, W, mu_x, g_x)
    norm_y, norm_x = norm(axis_y, KY, INSIDE), norm(axis_x, KX, INSIDE)
    z += n * zn + c * zc + top * zy + left * zx
    for i in tl.static_range(KY):
        row = feature * weight(i, axis_y, norm_y, KY, INSIDE)
        for j in tl.static_range(KX):
            there = live
            if not INSIDE:
                there = live & (top + i >= 0) & (top + i < H) & (left + j >= 0) & (left + j < W)
            share = row * weight(j, axis_x, norm_x, KX, INSIDE)
            tl.store(z + i * zy + j * zx, share, mask=there)


@triton.jit
def fit_pool_backward_kernel(
    z, d_p, d_mu, d_gamma, d_z, N, C, H, W, h, w, TY, TX, PY, PX, lo, hi,
    zn, zc, zy, zx, pn, pc, py, px, mn, ma, mc, my, mx, gn, ga, gc, gy, gx, dn, dc, dy, dx,
    KY: tl.constexpr, KX: tl.constexpr, POWER: tl.constexpr, D_MU: tl.constexpr, D_GAMMA: tl.constexpr,
    INSIDE: tl.constexpr, CHANNELS_LAST: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """∇z where regions do not overlap."""
    n, c, y, x, top, left, live = regions_here(N, C, h, w, TY, TX, PY, PX, CHANNELS_LAST, BLOCK, WIDE)
    z += n * zn + c * zc
    where_mu, where_gamma = d_mu + n * mn + c * mc + y * my + x * mx, d_gamma + n * gn + c * gc + y * gy + x * gx
    at = d_p + n * pn + c * pc + y * py + x * px, where_mu, where_gamma
    slopes = load_slopes(at, (ma, ga), live, D_MU, D_GAMMA, ACC)
    r = Region(z, top, left, live, H, W, zy, zx)
    known, more = fit_slopes(r, slopes, (lo, hi), KY, KX, POWER, INSIDE, ACC)
    slopes_here = ()  # all before the first store: no element is loaded twice
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            v, y, x = element(r, i, j, INSIDE, ACC), i - (KY - 1) / 2 - known[0], j - (KX - 1) / 2 - known[1]
            slopes_here += (gradient(v, y, x, known, more, POWER),)
    d_z += n * dn + c * dc + top * dy + left * dx
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            there = live
            if not INSIDE:
                there = live & (top + i >= 0) & (top + i < H) & (left + j >= 0) & (left + j < W)
            tl.store(d_z + i * dy + j * dx, slopes_here[i * KX + j], mask=there)


# --- launching


def fit_pool(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, geometry: Sequence[int], lo: float, hi: float, power: int
) -> None:
    where = mu.dim() == 5
    strides = (*z.stride(), *p.stride(), *(mu.stride() if where else [0] * 5))
    launch(fit_pool_kernel, z, p, geometry, (z, p, mu, gamma), (lo, hi), strides, POWER=power, WHERE=where)


def pool(z: Tensor, mu: Tensor, gamma: Tensor, p: Tensor, geometry: Sequence[int]) -> None:
    strides = (*z.stride(), *[0] * 4, *mu.stride(), *gamma.stride(), *p.stride(), *[0] * 5)
    launch(pool_kernel, z, p, geometry, (z, p, mu, gamma, p, p, p), (), strides, SLOPES=False)


def slopes(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, d_p: Tensor, d_mu: Tensor, d_gamma: Tensor, geometry: Sequence[int]
) -> None:
    strides = (*z.stride(), *p.stride(), *mu.stride(), *gamma.stride(), *d_p.stride(), *d_mu.stride())
    launch(pool_kernel, z, p, geometry, (z, p, mu, gamma, d_p, d_mu, d_gamma), (), strides, SLOPES=True)


def unpool(p: Tensor, mu: Tensor, gamma: Tensor, z: Tensor, geometry: Sequence[int]) -> None:
    strides = (*p.stride(), *mu.stride(), *gamma.stride())
    if overlapping(geometry):
        strides = (*[0] * 4, *strides, *z.stride())
        constants = {**common(z, p, geometry), "UNPOOL": True, "POWER": 2, "D_MU": True, "D_GAMMA": True}
        triton_overlap.launch(z, p, geometry, (z, p, mu, gamma, z), (0.0, 0.0), strides, constants)
    else:
        clear_gaps(z, p, geometry)
        launch(unpool_kernel, z, p, geometry, (p, mu, gamma, z), (), (*z.stride(), *strides))


def fit_pool_backward(
    z: Tensor,
    d_p: Tensor,
    d_mu: Tensor | None,
    d_gamma: Tensor | None,
    d_z: Tensor,
    geometry: Sequence[int],
    lo: float,
    hi: float,
    power: int,
) -> None:
    strides = (*z.stride(), *d_p.stride(), *strides_of(d_mu), *strides_of(d_gamma), *d_z.stride())
    tensors = (z, d_p, z if d_mu is None else d_mu, z if d_gamma is None else d_gamma, d_z)
    flags = {"POWER": power, "D_MU": d_mu is not None, "D_GAMMA": d_gamma is not None}
    if overlapping(geometry):
        constants = {**common(z, d_p, geometry), **flags, "UNPOOL": False}
        triton_overlap.launch(z, d_p, geometry, tensors, (lo, hi), strides, constants)
    else:
        clear_gaps(d_z, d_p, geometry)
        launch(fit_pool_backward_kernel, z, d_p, geometry, tensors, (lo, hi), strides, **flags)


def strides_of(where: Tensor | None) -> Sequence[int]:
    return [0] * 5 if where is None else where.stride()


def overlapping(geometry: Sequence[int]) -> bool:
    size_y, size_x, stride_y, stride_x = geometry[:4]
    return stride_y < size_y or stride_x < size_x


def clear_gaps(z: Tensor, p: Tensor, geometry: Sequence[int]) -> None:
    """Set elements outside all regions to zero."""
    for n, g, s, t, before in zip(z.shape[2:], p.shape[2:], geometry[:2], geometry[2:4], geometry[4:6], strict=True):
        if t > s or (g - 1) * t + s - before < n:
            z.zero_()
            return


def common(z: Tensor, p: Tensor, geometry: Sequence[int]) -> dict[str, Any]:
    """The constants that every kernel is compiled for."""
    size, stride, before = geometry[:2], geometry[2:4], geometry[4:6]
    reach = [(g - 1) * t + s for g, s, t in zip(p.shape[2:], size, stride, strict=True)]
    return {
        "KY": size[0],
        "KX": size[1],
        "INSIDE": not any(before) and reach[0] <= z.shape[2] and reach[1] <= z.shape[3],
        "CHANNELS_LAST": plain.channels_last(z),
        "ACC": tl.float64 if z.dtype == torch.float64 else tl.float32,
        "WIDE": max(z.numel(), 4 * p.numel()) >= WIDE,
    }


def launch(
    kernel: Any,
    z: Tensor,
    p: Tensor,
    geometry: Sequence[int],
    tensors: tuple[Tensor, ...],
    bounds: tuple[float, ...],
    strides: tuple[int, ...],
    **flags: Any,
) -> None:
    """Launch one program per BLOCK regions; nothing for an empty batch."""
    if p.numel() == 0:
        return
    sizes = (*z.shape, *p.shape[2:], *geometry[2:6])
    programs = (triton.cdiv(p.numel(), BLOCK),)
    with torch.cuda.device_of(z):
        kernel[programs](*tensors, *sizes, *bounds, *strides, BLOCK=BLOCK, **common(z, p, geometry), **flags)
