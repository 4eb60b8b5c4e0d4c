"""The computations of the kernels on a region that a thread holds in registers.

The loops over a region's elements are unrolled and follow the formulas; loads and weights that several loops use are
the same expressions, which the compiler computes once.
"""

from collections import namedtuple
from dataclasses import dataclass

import triton
import triton.language as tl

from whatwhere.inference.engines.triton.formulas import formulas

# What the kernels read, or write: z and p [N, C, …], μ and γ [N, 2, C, h, w] of rows and columns, each with its strides
Maps = namedtuple("Maps", "z p mu gamma z_strides p_strides mu_strides gamma_strides")
# Sizes of the map and of the grid of regions, the distance of regions, and how far the first begins before the map
Sizes = namedtuple("Sizes", "N C H W h w stride_y stride_x padding_y padding_x")
# Regions in a map: its memory, where they begin, which exist, the map's size and strides along rows and columns
Region = namedtuple("Region", "z top left live H W zy zx")


@dataclass(frozen=True)
class Rule:
    """What a kernel is compiled for.

    inside           all regions lie inside the map
    mu, gamma        these are given, or wanted
    wide             offsets need 64 bits
    stride, holders, group  where regions overlap: see `triton_overlap`
    """

    operation: str
    size: tuple[int, int]
    power: int
    inside: bool
    channels_last: bool
    mu: bool
    gamma: bool
    wide: bool
    stride: tuple[int, int] = (0, 0)
    holders: tuple[int, int] = (1, 1)
    group: int = 1


@triton.jit
def zeros(pointer, like):
    """Zeros shaped like a tensor, of the dtype that all is computed in: float64 for float64 maps, else float32."""
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
def theta_offset(strides, at):
    """Where μ or γ along rows of the regions at = (n, c, y, x) is; along columns it is strides[1] further on."""
    return at[0] * strides[0] + at[1] * strides[2] + at[2] * strides[3] + at[3] * strides[4]


@triton.jit
def load_values(maps, at, live, RULE: tl.constexpr):
    """p, μ_y, μ_x, γ_y, γ_x of each region, or their gradients; 0 for what is not given."""
    p = tl.load(maps.p + map_offset(maps.p_strides, at), mask=live, other=0).to(zeros(maps.p, live).dtype)
    mu_y, mu_x, g_y, g_x = p * 0, p * 0, p * 0, p * 0
    if RULE.mu:
        mu = maps.mu + theta_offset(maps.mu_strides, at)
        mu_y, mu_x = (
            tl.load(mu, mask=live, other=0).to(p.dtype),
            tl.load(mu + maps.mu_strides[1], mask=live, other=0).to(p.dtype),
        )
    if RULE.gamma:
        gamma = maps.gamma + theta_offset(maps.gamma_strides, at)
        g_y, g_x = (
            tl.load(gamma, mask=live, other=0).to(p.dtype),
            tl.load(gamma + maps.gamma_strides[1], mask=live, other=0).to(p.dtype),
        )
    return p, mu_y, mu_x, g_y, g_x


@triton.jit
def inside(r, i: tl.constexpr, j: tl.constexpr, INSIDE: tl.constexpr):
    """Whether element (i, j) of every region lies in the map."""
    there = r.live
    if not INSIDE:
        there = r.live & (r.top + i >= 0) & (r.top + i < r.H) & (r.left + j >= 0) & (r.left + j < r.W)
    return there


@triton.jit
def element(r, i: tl.constexpr, j: tl.constexpr, INSIDE: tl.constexpr):
    """z(i) of every region; 0 beyond the map."""
    z = tl.load(r.z + (r.top + i) * r.zy + (r.left + j) * r.zx, mask=inside(r, i, j, INSIDE), other=0)
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
    """The moments of each region: largest |s|, Σ|s|^power (1 in empty regions), θ = (μ_y, μ_x, γ_y, γ_x), variances."""
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
    v_y, v_x = tl.where(empty, float("inf"), v_y / total), tl.where(empty, float("inf"), v_x / total)
    g_y = formulas.precision(v_y, total, bounds[0], bounds[1])
    return largest, total, (mu_y, mu_x, g_y, formulas.precision(v_x, total, bounds[0], bounds[1])), (v_y, v_x)


@triton.jit
def sums(r, theta, RULE: tl.constexpr):
    """P = Σ w z of each region and its derivatives by θ = (μ_y, μ_x, γ_y, γ_x); then the norms of both axes."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    INSIDE: tl.constexpr = RULE.inside
    mu_y, mu_x, g_y, g_x = theta
    axis_y, axis_x = (r.top, r.H, mu_y, g_y), (r.left, r.W, mu_x, g_x)
    norm_y, norm_x = norm(axis_y, KY, INSIDE), norm(axis_x, KX, INSIDE)
    p = zeros(r.z, r.top)
    m_y, m_x, s_y, s_x, q_y, q_x, r_y, r_x = p, p, p, p, p, p, p, p  # of w z and of q: first and second moments about μ
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
def fit_slopes(r, slopes, bounds, RULE: tl.constexpr):
    """Of each region, from the slopes by p and θ: μ, γ, and the coefficients of ∇z(i) = G w̃(i) + r(i) Q(i), where

    w̃(i) = exp(-γ_y y²/4 - γ_x x²/4 - peak),  Q(i) = c + a_y y + a_x x + b_y y² + b_x x²,  y and x from μ
    r(i) = the derivative of |z|^power, z in units of the largest
    """
    d_p, d_mu_y, d_mu_x, d_g_y, d_g_x = slopes
    largest, total, theta, variances = fit(r, bounds, RULE)
    mu_y, mu_x, g_y, g_x = theta
    _, by_theta, norm_y, norm_x = sums(r, theta, RULE)
    m_y, m_x, n_y, n_x = by_theta
    unit = 1 / total / tl.maximum(largest, 1e-30)
    a_y, b_y, c_y = formulas.fit_slope((mu_y, g_y), variances[0], (d_p * m_y + d_mu_y, d_p * n_y + d_g_y), unit)
    a_x, b_x, c_x = formulas.fit_slope((mu_x, g_x), variances[1], (d_p * m_x + d_mu_x, d_p * n_x + d_g_x), unit)
    known = mu_y, mu_x, g_y, g_x, d_p * norm_y[1] * norm_x[1], norm_y[0] + norm_x[0]
    return known, (largest, -c_y - c_x, a_y, a_x, b_y, b_x)


@triton.jit
def gradient(v, y, x, known, more, POWER: tl.constexpr):
    """One region's contribution to ∇z at an element (see fit_slopes)."""
    _, _, g_y, g_x, G, peak = known
    largest, c, a_y, a_x, b_y, b_x = more
    w = tl.exp(-0.25 * (g_y * y * y + g_x * x * x) - peak)
    slope = formulas.strength_slope(v / largest, POWER)
    return G * w + slope * (c + a_y * y + a_x * x + b_y * y * y + b_x * x * x)
