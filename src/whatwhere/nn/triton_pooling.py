"""Fused kernels of Gaussian pooling for CUDA, and their launch: a thread holds a region in its
registers.

Everything is computed in float32, or in float64 for float64 maps. Loops over a region's elements
are unrolled and follow the formulas; loads and weights that several loops use are the same
expressions, which the compiler computes once. Regions that overlap are added up in passes, each
over regions that do not.
"""

import itertools
import math
from collections import namedtuple
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.engines.triton.math import formulas
from whatwhere.nn import fused, plain
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

BLOCK = 256  # regions of one program
WIDE = 2**31  # number of elements from which offsets need 64 bits

# What the kernels read, or write: z and p [N, C, …], μ and γ [N, 2, C, h, w] of rows and columns,
# with their strides. Those of z: images, channels, rows and columns of regions, rows and columns in
# a region, and how far the first region begins before the map.
Memory = namedtuple("Memory", "z p mu gamma z_strides p_strides mu_strides gamma_strides")
# Sizes of the map and of the grid of regions, the distance of regions, and how far the first begins
# before the map
Sizes = namedtuple("Sizes", "N C H W h w stride_y stride_x padding_y padding_x")
# Regions in a map: their first elements, where these are, which exist, the map's size and strides
Region = namedtuple("Region", "z top left live H W zy zx")


@dataclass(frozen=True)
class Rule:
    """What a kernel is compiled for.

    inside  all regions lie inside the map
    theta   μ and γ are given, or wanted
    wide    offsets need 64 bits
    add     z is added to what is there
    """

    operation: str
    size: tuple[int, int]
    power: int
    inside: bool
    channels_last: bool
    theta: bool
    wide: bool
    add: bool


@triton.jit
def zeros(pointer, like):
    """Zeros shaped like a tensor, of the dtype that all is computed in: float64 for float64 maps,
    else float32."""
    DTYPE: tl.constexpr = tl.float64 if pointer.dtype.element_ty == tl.float64 else tl.float32
    return tl.zeros(like.shape, DTYPE)


@triton.jit
def place(index, C, H, W, CHANNELS_LAST: tl.constexpr):
    """Image, channel, row and column of the index-th element in the order of memory."""
    if CHANNELS_LAST:
        c, rest = index % C, index // C
        x, rest = rest % W, rest // W
        return rest // H, c, rest % H, x
    x, rest = index % W, index // W
    y, rest = rest % H, rest // H
    return rest // C, rest % C, y, x


@triton.jit
def map_offset(strides, at):
    """Where the elements at = (n, c, y, x) of a map are."""
    return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3]


@triton.jit
def first_elements(maps, at):
    """Where the first elements of the regions at = (n, c, y, x) are."""
    return maps.z + (map_offset(maps.z_strides, at) - maps.z_strides[6])


@triton.jit
def theta_offset(strides, at):
    """Where μ or γ along rows of the regions at = (n, c, y, x) is; along columns it is strides[1]
    further on."""
    return at[0] * strides[0] + at[1] * strides[2] + at[2] * strides[3] + at[3] * strides[4]


@triton.jit
def load_values(maps, at, live, RULE: tl.constexpr):
    """p, μ_y, μ_x, γ_y, γ_x of each region, or their gradients; 0 for θ that is not given."""
    p = tl.load(maps.p + map_offset(maps.p_strides, at), mask=live, other=0).to(
        zeros(maps.p, live).dtype
    )
    mu_y, mu_x, g_y, g_x = p * 0, p * 0, p * 0, p * 0
    if RULE.theta:
        mu, gamma = (
            maps.mu + theta_offset(maps.mu_strides, at),
            maps.gamma + theta_offset(maps.gamma_strides, at),
        )
        mu_y = tl.load(mu, mask=live, other=0).to(p.dtype)
        mu_x = tl.load(mu + maps.mu_strides[1], mask=live, other=0).to(p.dtype)
        g_y = tl.load(gamma, mask=live, other=0).to(p.dtype)
        g_x = tl.load(gamma + maps.gamma_strides[1], mask=live, other=0).to(p.dtype)
    return p, mu_y, mu_x, g_y, g_x


@triton.jit
def inside(r, i: tl.constexpr, j: tl.constexpr, INSIDE: tl.constexpr):
    """Whether element (i, j) of every region lies in the map."""
    there = r.live
    if not INSIDE:
        there = (
            r.live & (r.top + i >= 0) & (r.top + i < r.H) & (r.left + j >= 0) & (r.left + j < r.W)
        )
    return there


@triton.jit
def element(r, i: tl.constexpr, j: tl.constexpr, INSIDE: tl.constexpr):
    """z(i) of every region; 0 beyond the map."""
    z = tl.load(r.z + i * r.zy + j * r.zx, mask=inside(r, i, j, INSIDE), other=0)
    return z.to(zeros(r.z, r.top).dtype)


@triton.jit
def exponent(i: tl.constexpr, axis, K: tl.constexpr, INSIDE: tl.constexpr):
    """log w_i but for its norm, or -∞ beyond the map; `axis` = (first, extent, μ, γ)."""
    first, extent, mu, gamma = axis
    h = formulas.exponent(i - (K - 1) / 2, mu, gamma) * 0.5
    if not INSIDE:
        h = tl.where((first + i >= 0) & (first + i < extent), h, float("-inf"))
    return h


@triton.jit
def norm(axis, K: tl.constexpr, INSIDE: tl.constexpr):
    """Peak and scale, so that w_i = scale exp(exponent_i - peak) and Σ w² = 1."""
    peak = exponent(0, axis, K, INSIDE)
    for i in tl.static_range(1, K):
        peak = tl.maximum(peak, exponent(i, axis, K, INSIDE))
    total = axis[2] * 0
    for i in tl.static_range(K):
        w = tl.exp(exponent(i, axis, K, INSIDE) - peak)
        total += w * w
    return peak, 1 / tl.sqrt(total)


@triton.jit
def weight(i: tl.constexpr, axis, norm, K: tl.constexpr, INSIDE: tl.constexpr):
    return tl.exp(exponent(i, axis, K, INSIDE) - norm[0]) * norm[1]


@triton.jit
def fit(r, bounds, RULE: tl.constexpr):
    """The moments of each region: largest |s|, Σ|s|^power (1 in empty regions), θ = (μ_y, μ_x,
    γ_y, γ_x), variances."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    zero = zeros(r.z, r.top)
    largest, total, mu_y, mu_x, v_y, v_x = zero, zero, zero, zero, zero, zero
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            largest = tl.maximum(largest, tl.abs(element(r, i, j, RULE.inside)))
    empty = largest == 0
    largest = formulas.or_one(largest)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = formulas.strength(element(r, i, j, RULE.inside) / largest, RULE.power)
            total += a
            mu_y += a * (i - (KY - 1) / 2)
            mu_x += a * (j - (KX - 1) / 2)
    total = formulas.or_one(total)
    mu_y, mu_x = mu_y / total, mu_x / total
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = formulas.strength(element(r, i, j, RULE.inside) / largest, RULE.power)
            v_y += a * (i - (KY - 1) / 2 - mu_y) * (i - (KY - 1) / 2 - mu_y)
            v_x += a * (j - (KX - 1) / 2 - mu_x) * (j - (KX - 1) / 2 - mu_x)
    v_y, v_x = (
        tl.where(empty, float("inf"), v_y / total),
        tl.where(empty, float("inf"), v_x / total),
    )
    g_y = formulas.precision(v_y, total, bounds[0], bounds[1])
    return (
        largest,
        total,
        (mu_y, mu_x, g_y, formulas.precision(v_x, total, bounds[0], bounds[1])),
        (v_y, v_x),
    )


@triton.jit
def sums(r, theta, RULE: tl.constexpr):
    """P = Σ w z of each region and its derivatives by θ = (μ_y, μ_x, γ_y, γ_x); then the norms of
    both axes."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    INSIDE: tl.constexpr = RULE.inside
    mu_y, mu_x, g_y, g_x = theta
    axis_y, axis_x = (r.top, r.H, mu_y, g_y), (r.left, r.W, mu_x, g_x)
    norm_y, norm_x = norm(axis_y, KY, INSIDE), norm(axis_x, KX, INSIDE)
    p = zeros(r.z, r.top)
    m_y, m_x, s_y, s_x, q_y, q_x, r_y, r_x = (
        p,
        p,
        p,
        p,
        p,
        p,
        p,
        p,
    )  # of w z and of q: first and second moments about μ
    for i in tl.static_range(KY):
        w_y, y = weight(i, axis_y, norm_y, KY, INSIDE), i - (KY - 1) / 2 - mu_y
        row = zeros(r.z, r.top)
        for j in tl.static_range(KX):
            w_x, x = weight(j, axis_x, norm_x, KX, INSIDE), j - (KX - 1) / 2 - mu_x
            share = w_x * element(r, i, j, INSIDE)
            row += share
            m_x += w_y * share * x
            s_x += w_y * share * x * x
            if i == 0:
                q_x += w_x * w_x * x
                r_x += w_x * w_x * x * x
        p += w_y * row
        m_y += w_y * row * y
        s_y += w_y * row * y * y
        q_y += w_y * w_y * y
        r_y += w_y * w_y * y * y
    d_mu_y, d_g_y = formulas.theta_gradient(0.0, g_y, m_y - p * q_y, s_y - p * r_y)
    d_mu_x, d_g_x = formulas.theta_gradient(0.0, g_x, m_x - p * q_x, s_x - p * r_x)
    return p, (d_mu_y, d_mu_x, d_g_y, d_g_x), norm_y, norm_x


@triton.jit
def pooling_kernel(read, written, sizes, bounds, RULE: tl.constexpr, BLOCK: tl.constexpr):
    """The operation of the rule for BLOCK regions."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if RULE.wide:
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = place(index, sizes.C, sizes.h, sizes.w, RULE.channels_last)
    n, _, y, x = at
    top, left, live = (
        y * sizes.stride_y - sizes.padding_y,
        x * sizes.stride_x - sizes.padding_x,
        n < sizes.N,
    )
    r = Region(
        first_elements(read, at),
        top,
        left,
        live,
        sizes.H,
        sizes.W,
        read.z_strides[4],
        read.z_strides[5],
    )
    if RULE.operation == "fit_pool":
        _, _, theta, _ = fit(r, bounds, RULE)
        tl.store(written.p + map_offset(written.p_strides, at), sums(r, theta, RULE)[0], mask=live)
        if RULE.theta:
            store_theta(written, at, theta, live)
    elif RULE.operation == "unpool":
        spread(written, r, at, load_values(read, at, live, RULE), RULE)
    elif RULE.operation == "fit_pool_backward":
        store_gradient(written, r, at, load_values(read, at, live, RULE), bounds, RULE)
    else:
        p, mu_y, mu_x, g_y, g_x = load_values(read, at, live, RULE)
        pooled, slopes, _, _ = sums(r, (mu_y, mu_x, g_y, g_x), RULE)
        tl.store(written.p + map_offset(written.p_strides, at), pooled, mask=live)
        if RULE.operation == "slopes":
            store_theta(
                written, at, (p * slopes[0], p * slopes[1], p * slopes[2], p * slopes[3]), live
            )


@triton.jit
def store_theta(maps, at, theta, live):
    """μ_y, μ_x, γ_y and γ_x of each region, or what belongs to them."""
    mu, gamma = (
        maps.mu + theta_offset(maps.mu_strides, at),
        maps.gamma + theta_offset(maps.gamma_strides, at),
    )
    tl.store(mu, theta[0], mask=live)
    tl.store(mu + maps.mu_strides[1], theta[1], mask=live)
    tl.store(gamma, theta[2], mask=live)
    tl.store(gamma + maps.gamma_strides[1], theta[3], mask=live)


@triton.jit
def put(place, value, mask, RULE: tl.constexpr):
    """Store a value, or add it to what is there."""
    if RULE.add:
        value += tl.load(place, mask=mask, other=0)
    tl.store(place, value, mask=mask)


@triton.jit
def spread(maps, r, at, values, RULE: tl.constexpr):
    """z(i) = w(i) p(j)."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    p, mu_y, mu_x, g_y, g_x = values
    axis_y, axis_x = (r.top, r.H, mu_y, g_y), (r.left, r.W, mu_x, g_x)
    norm_y, norm_x = norm(axis_y, KY, RULE.inside), norm(axis_x, KX, RULE.inside)
    z, zy, zx = first_elements(maps, at), maps.z_strides[4], maps.z_strides[5]
    for i in tl.static_range(KY):
        row = p * weight(i, axis_y, norm_y, KY, RULE.inside)
        for j in tl.static_range(KX):
            share = row * weight(j, axis_x, norm_x, KX, RULE.inside)
            put(z + i * zy + j * zx, share, inside(r, i, j, RULE.inside), RULE)


@triton.jit
def store_gradient(maps, r, at, slopes, bounds, RULE: tl.constexpr):
    """∇z(i) = ∇p w(i) + r(i) (a_y y + b_y y² - c_y + a_x x + b_x x² - c_x) of the elements of each
    region, from the slopes by p and θ; y and x from μ, r(i) the derivative of |z|^power with z in
    units of the largest."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    d_p, d_mu_y, d_mu_x, d_g_y, d_g_x = slopes
    largest, total, theta, variances = fit(r, bounds, RULE)
    mu_y, mu_x, g_y, g_x = theta
    _, by_theta, norm_y, norm_x = sums(r, theta, RULE)
    m_y, m_x, n_y, n_x = by_theta
    unit = 1 / total / tl.maximum(largest, 1e-30)
    a_y, b_y, c_y = formulas.fit_slope(
        (mu_y, g_y), variances[0], (d_p * m_y + d_mu_y, d_p * n_y + d_g_y), unit
    )
    a_x, b_x, c_x = formulas.fit_slope(
        (mu_x, g_x), variances[1], (d_p * m_x + d_mu_x, d_p * n_x + d_g_x), unit
    )
    axis_y, axis_x = (r.top, r.H, mu_y, g_y), (r.left, r.W, mu_x, g_x)
    gradient = ()  # all before the first store: no element is loaded twice
    for i in tl.static_range(KY):
        w_y, y = d_p * weight(i, axis_y, norm_y, KY, RULE.inside), i - (KY - 1) / 2 - mu_y
        for j in tl.static_range(KX):
            w_x, x = weight(j, axis_x, norm_x, KX, RULE.inside), j - (KX - 1) / 2 - mu_x
            slope = formulas.strength_slope(element(r, i, j, RULE.inside) / largest, RULE.power)
            gradient += (
                w_y * w_x + slope * (a_y * y + b_y * y * y - c_y + a_x * x + b_x * x * x - c_x),
            )
    z, zy, zx = first_elements(maps, at), maps.z_strides[4], maps.z_strides[5]
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            put(z + i * zy + j * zx, gradient[i * KX + j], inside(r, i, j, RULE.inside), RULE)


def launch(
    operation: str, regions: Regions, read: fused.Maps, written: fused.Maps, fit: MomentFit
) -> None:
    """Run an operation of `fused` on all regions."""
    z = next(tensor for tensor in (read.z, written.z) if tensor is not None)
    theta = read.mu is not None or written.mu is not None
    rule, passes = describe(
        operation, regions, z.shape[0], plain.channels_last(z), theta, fit.power
    )
    bounds, out = (float(fit.gamma_min), float(fit.gamma_max)), cast(Tensor, written.z)
    total = plain.precise(out) if rule.add else out  # 0 before
    with torch.cuda.device_of(z):
        for sizes, some in passes:
            values = (None if tensor is None else tensor[some] for tensor in read[1:])
            given = fused.Maps(read.z, *values) if rule.add else read
            memory = memory_of(given, sizes, z), memory_of(written._replace(z=total), sizes, z)
            programs = (triton.cdiv(sizes.N * sizes.C * sizes.h * sizes.w, BLOCK),)
            pooling_kernel[programs](*memory, sizes, bounds, RULE=rule, BLOCK=BLOCK)
    if total is not out:
        out.copy_(total)


@lru_cache(256)
def describe(
    operation: str, regions: Regions, images: int, channels_last: bool, theta: bool, power: int
) -> tuple[Rule, list[tuple[Sizes, Any]]]:
    """What a kernel is compiled for; and the passes: sizes, and which rows and columns of regions.

    If it writes to regions that overlap, a pass has every second region along an axis, or every
    third …
    """
    shape, grid, size, stride = regions.shape, regions.grid, regions.size[1:], regions.stride[1:]
    writes_z = operation in ("unpool", "fit_pool_backward")
    every = [
        min(triton.cdiv(s, t), g) if writes_z else 1
        for s, t, g in zip(size, stride, grid[1:], strict=True)
    ]
    wide, inside = (
        images * max(math.prod(shape), 4 * math.prod(grid)) >= WIDE,
        regions.inside(1) and regions.inside(2),
    )
    rule = Rule(operation, size, power, inside, channels_last, theta, wide, add=every != [1, 1])
    passes = []
    for first in itertools.product(range(every[0]), range(every[1])):
        some = [slice(a, None, step) for a, step in zip(first, every, strict=True)]
        counts = [len(range(g)[part]) for g, part in zip(grid[1:], some, strict=True)]
        strides = [step * t for step, t in zip(every, stride, strict=True)]
        before = [b - a * t for b, a, t in zip(regions.padding[1:], first, stride, strict=True)]
        passes.append((Sizes(images, *shape, *counts, *strides, *before), (..., *some)))
    return rule, passes


def memory_of(maps: fused.Maps, sizes: Any, instead: Tensor) -> Memory:
    """Tensors with their strides; what is not given is another tensor, which is not used."""
    z_strides: tuple[int, ...] = (0,) * 7
    if maps.z is not None:
        n, c, y, x = maps.z.stride()
        begin = sizes.padding_y * y + sizes.padding_x * x
        z_strides = n, c, sizes.stride_y * y, sizes.stride_x * x, y, x, begin
    strides = [(0,) * 5 if tensor is None else tensor.stride() for tensor in maps[1:]]
    return Memory._make(
        [*(instead if tensor is None else tensor for tensor in maps), z_strides, *strides]
    )
