"""The computations of the kernels on a region that a thread holds in registers.

The loops over a region's elements are unrolled and follow the formulas; loads and weights that several loops use are
the same expressions, which the compiler computes once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from collections import namedtuple

import triton
import triton.language as tl

# Regions in a map: its memory, where they begin, which exist, the map's size and strides along rows and columns
Region = namedtuple("Region", "z top left live H W zy zx")


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
def element(r, i: tl.constexpr, j: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr):
    """z(i) of every region; 0 beyond the map."""
    there = r.live
    if not INSIDE:
        there = r.live & (r.top + i >= 0) & (r.top + i < r.H) & (r.left + j >= 0) & (r.left + j < r.W)
    return tl.load(r.z + (r.top + i) * r.zy + (r.left + j) * r.zx, mask=there, other=0).to(ACC)


@triton.jit
def exponent(i: tl.constexpr, axis, K: tl.constexpr, INSIDE: tl.constexpr):
    """log w_i but for its norm: -γ (x_i - μ)² / 4, or -∞ beyond the map; `axis` = (first, extent, μ, γ)."""
    first, extent, mu, gamma = axis
    x = i - (K - 1) / 2 - mu
    h = -0.25 * gamma * x * x
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
def strength(v, largest, POWER: tl.constexpr):
    """|s|^power, relative to the largest of the region."""
    a = tl.abs(v) / largest
    if POWER == 2:
        a = a * a
    return a


@triton.jit
def fit(r, KY: tl.constexpr, KX: tl.constexpr, POWER: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr):
    """The moments of each region: largest |s| and Σ|s|^power (1 in empty regions), μ and variance along both axes."""
    largest = tl.zeros(r.top.shape, ACC)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            largest = tl.maximum(largest, tl.abs(element(r, i, j, INSIDE, ACC)))
    empty = largest == 0
    largest = tl.where(empty, 1.0, largest)
    total, mu_y, mu_x = tl.zeros(r.top.shape, ACC), tl.zeros(r.top.shape, ACC), tl.zeros(r.top.shape, ACC)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = strength(element(r, i, j, INSIDE, ACC), largest, POWER)
            total += a
            mu_y += a * (i - (KY - 1) / 2)
            mu_x += a * (j - (KX - 1) / 2)
    total = tl.where(empty, 1.0, total)
    mu_y, mu_x = mu_y / total, mu_x / total
    v_y, v_x = tl.zeros(r.top.shape, ACC), tl.zeros(r.top.shape, ACC)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = strength(element(r, i, j, INSIDE, ACC), largest, POWER)
            v_y += a * (i - (KY - 1) / 2 - mu_y) * (i - (KY - 1) / 2 - mu_y)
            v_x += a * (j - (KX - 1) / 2 - mu_x) * (j - (KX - 1) / 2 - mu_x)
    v_y, v_x = tl.where(empty, float("inf"), v_y / total), tl.where(empty, float("inf"), v_x / total)
    return largest, total, mu_y, mu_x, v_y, v_x


@triton.jit
def precision(variance, lo, hi):
    """γ = 1 / variance, bounded."""
    gamma = 1 / tl.maximum(variance, 1 / tl.maximum(hi, 1.0))
    return tl.minimum(tl.maximum(gamma, lo), hi)


@triton.jit
def sums(r, theta, KY: tl.constexpr, KX: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr):
    """P = Σ w z of each region and its derivatives by θ = (μ_y, μ_x, γ_y, γ_x); then the norms of both axes."""
    mu_y, mu_x, g_y, g_x = theta
    axis_y, axis_x = (r.top, r.H, mu_y, g_y), (r.left, r.W, mu_x, g_x)
    norm_y, norm_x = norm(axis_y, KY, INSIDE), norm(axis_x, KX, INSIDE)
    p, m_y, m_x = tl.zeros(r.top.shape, ACC), tl.zeros(r.top.shape, ACC), tl.zeros(r.top.shape, ACC)
    s_y, s_x = tl.zeros(r.top.shape, ACC), tl.zeros(r.top.shape, ACC)
    q_y, q_x, r_y, r_x = s_y, s_x, s_y, s_x  # first and second moments of q about μ
    for i in tl.static_range(KY):
        w_y, y = weight(i, axis_y, norm_y, KY, INSIDE), i - (KY - 1) / 2 - mu_y
        row = tl.zeros(r.top.shape, ACC)
        for j in tl.static_range(KX):
            w_x, x = weight(j, axis_x, norm_x, KX, INSIDE), j - (KX - 1) / 2 - mu_x
            share = w_x * element(r, i, j, INSIDE, ACC)
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
    d_mu_y, d_mu_x = g_y * (m_y - p * q_y) / 2, g_x * (m_x - p * q_x) / 2
    d_g_y, d_g_x = (p * r_y - s_y) / 4, (p * r_x - s_x) / 4
    return p, (d_mu_y, d_mu_x, d_g_y, d_g_x), norm_y, norm_x


@triton.jit
def fit_slopes(
    r, slopes, bounds,
    KY: tl.constexpr, KX: tl.constexpr, POWER: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Of each region, from the slopes by p and θ: μ, γ, and the coefficients of ∇z(i) = G w̃(i) + r(i) Q(i), where

    w̃(i) = exp(-γ_y y²/4 - γ_x x²/4 - peak),  Q(i) = c + a_y y + a_x x + b_y y² + b_x x²,  y and x from μ
    r(i) = z(i) / largest, or its sign where power is 1
    """
    lo, hi = bounds
    d_p, d_mu_y, d_mu_x, d_g_y, d_g_x = slopes
    largest, total, mu_y, mu_x, v_y, v_x = fit(r, KY, KX, POWER, INSIDE, ACC)
    g_y, g_x = precision(v_y, lo, hi), precision(v_x, lo, hi)
    _, by_theta, norm_y, norm_x = sums(r, (mu_y, mu_x, g_y, g_x), KY, KX, INSIDE, ACC)
    m_y, m_x, n_y, n_x = by_theta
    # ∂μ/∂a = (y - μ) / Σa,  ∂γ/∂a = -γ² ((y - μ)² - v) / Σa where no bound holds it, with a = (|z| / largest)^power
    unit = POWER / total / tl.maximum(largest, 1e-30)
    a_y, a_x = unit * (d_p * m_y + d_mu_y), unit * (d_p * m_x + d_mu_x)
    b_y = tl.where(1 / v_y == g_y, -unit * g_y * g_y * (d_p * n_y + d_g_y), 0.0)
    b_x = tl.where(1 / v_x == g_x, -unit * g_x * g_x * (d_p * n_x + d_g_x), 0.0)
    c = -tl.where(b_y == 0, 0.0, b_y * v_y) - tl.where(b_x == 0, 0.0, b_x * v_x)
    known = mu_y, mu_x, g_y, g_x, d_p * norm_y[1] * norm_x[1], norm_y[0] + norm_x[0]
    return known, (largest, c, a_y, a_x, b_y, b_x)


@triton.jit
def relative(v, largest, POWER: tl.constexpr):
    r = v / largest
    if POWER == 1:
        r = tl.where(v > 0, 1.0, tl.where(v < 0, -1.0, 0.0)).to(v.dtype)
    return r


@triton.jit
def load_slopes(at, strides, live, D_MU: tl.constexpr, D_GAMMA: tl.constexpr, ACC: tl.constexpr):
    """∇p, ∇μ_y, ∇μ_x, ∇γ_y, ∇γ_x of each region, where they are and the strides from y to x; 0 for unused outputs."""
    d_p, d_mu, d_gamma = at
    ma, ga = strides
    slope = tl.load(d_p, mask=live, other=0).to(ACC)
    m_y, m_x, n_y, n_x = slope * 0, slope * 0, slope * 0, slope * 0
    if D_MU:
        m_y, m_x = tl.load(d_mu, mask=live, other=0).to(ACC), tl.load(d_mu + ma, mask=live, other=0).to(ACC)
    if D_GAMMA:
        n_y, n_x = tl.load(d_gamma, mask=live, other=0).to(ACC), tl.load(d_gamma + ga, mask=live, other=0).to(ACC)
    return slope, m_y, m_x, n_y, n_x


@triton.jit
def gradient(v, y, x, known, more, POWER: tl.constexpr):
    """One region's contribution to ∇z at an element (see fit_slopes)."""
    _, _, g_y, g_x, G, peak = known
    largest, c, a_y, a_x, b_y, b_x = more
    w = tl.exp(-0.25 * (g_y * y * y + g_x * x * x) - peak)
    return G * w + relative(v, largest, POWER) * (c + a_y * y + a_x * x + b_y * y * y + b_x * x * x)
