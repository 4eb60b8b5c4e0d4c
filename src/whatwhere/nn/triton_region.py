"""The computations of the kernels on a region that a thread holds in registers.

The loops over a region's elements are unrolled and follow the formulas; loads and weights that several loops use are
the same expressions, which the compiler computes once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import triton
import triton.language as tl


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
def element(
    z, top, left, i: tl.constexpr, j: tl.constexpr, live, H, W, zy, zx, INSIDE: tl.constexpr, ACC: tl.constexpr
):
    """z(i) of the regions that begin at (top, left); 0 beyond the map."""
    there = live
    if not INSIDE:
        there = live & (top + i >= 0) & (top + i < H) & (left + j >= 0) & (left + j < W)
    return tl.load(z + (top + i) * zy + (left + j) * zx, mask=there, other=0).to(ACC)


@triton.jit
def exponent(i: tl.constexpr, first, extent, mu, gamma, K: tl.constexpr, INSIDE: tl.constexpr):
    """log w_i but for its norm: -γ (x_i - μ)² / 4, or -∞ beyond the map."""
    x = i - (K - 1) / 2 - mu
    h = -0.25 * gamma * x * x
    if not INSIDE:
        h = tl.where((first + i >= 0) & (first + i < extent), h, float("-inf"))
    return h


@triton.jit
def norm(first, extent, mu, gamma, K: tl.constexpr, INSIDE: tl.constexpr):
    """Peak and scale, so that w_i = scale exp(exponent_i - peak) and Σ w² = 1."""
    peak = exponent(0, first, extent, mu, gamma, K, INSIDE)
    for i in tl.static_range(1, K):
        peak = tl.maximum(peak, exponent(i, first, extent, mu, gamma, K, INSIDE))
    total = mu * 0
    for i in tl.static_range(K):
        w = tl.exp(exponent(i, first, extent, mu, gamma, K, INSIDE) - peak)
        total += w * w
    return peak, 1 / tl.sqrt(total)


@triton.jit
def weight(i: tl.constexpr, first, extent, mu, gamma, peak, scale, K: tl.constexpr, INSIDE: tl.constexpr):
    return tl.exp(exponent(i, first, extent, mu, gamma, K, INSIDE) - peak) * scale


@triton.jit
def strength(v, largest, POWER: tl.constexpr):
    """|s|^power, relative to the largest of the region."""
    a = tl.abs(v) / largest
    if POWER == 2:
        a = a * a
    return a


@triton.jit
def fit(
    z, top, left, live, H, W, zy, zx, lo, hi,
    KY: tl.constexpr, KX: tl.constexpr, POWER: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The moments of each region: largest |s| and Σ|s|^power (1 in empty regions), μ and variance along both axes."""
    largest = tl.zeros(top.shape, ACC)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            largest = tl.maximum(largest, tl.abs(element(z, top, left, i, j, live, H, W, zy, zx, INSIDE, ACC)))
    empty = largest == 0
    largest = tl.where(empty, 1.0, largest)
    total, mu_y, mu_x = tl.zeros(top.shape, ACC), tl.zeros(top.shape, ACC), tl.zeros(top.shape, ACC)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = strength(element(z, top, left, i, j, live, H, W, zy, zx, INSIDE, ACC), largest, POWER)
            total += a
            mu_y += a * (i - (KY - 1) / 2)
            mu_x += a * (j - (KX - 1) / 2)
    total = tl.where(empty, 1.0, total)
    mu_y, mu_x = mu_y / total, mu_x / total
    v_y, v_x = tl.zeros(top.shape, ACC), tl.zeros(top.shape, ACC)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = strength(element(z, top, left, i, j, live, H, W, zy, zx, INSIDE, ACC), largest, POWER)
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
def sums(
    z, top, left, live, H, W, zy, zx, mu_y, mu_x, g_y, g_x,
    KY: tl.constexpr, KX: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """P = Σ w z of each region and its derivatives by μ_y, μ_x, γ_y, γ_x; then the norms of both axes."""
    peak_y, scale_y = norm(top, H, mu_y, g_y, KY, INSIDE)
    peak_x, scale_x = norm(left, W, mu_x, g_x, KX, INSIDE)
    p, m_y, m_x = tl.zeros(top.shape, ACC), tl.zeros(top.shape, ACC), tl.zeros(top.shape, ACC)
    s_y, s_x = tl.zeros(top.shape, ACC), tl.zeros(top.shape, ACC)
    q_y, q_x, r_y, r_x = s_y, s_x, s_y, s_x  # first and second moments of q about μ
    for i in tl.static_range(KY):
        w_y, y = weight(i, top, H, mu_y, g_y, peak_y, scale_y, KY, INSIDE), i - (KY - 1) / 2 - mu_y
        row = tl.zeros(top.shape, ACC)
        for j in tl.static_range(KX):
            w_x, x = weight(j, left, W, mu_x, g_x, peak_x, scale_x, KX, INSIDE), j - (KX - 1) / 2 - mu_x
            share = w_x * element(z, top, left, i, j, live, H, W, zy, zx, INSIDE, ACC)
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
    return p, d_mu_y, d_mu_x, d_g_y, d_g_x, peak_y, scale_y, peak_x, scale_x


@triton.jit
def fit_slopes(
    z, top, left, live, H, W, zy, zx, d_p, d_mu_y, d_mu_x, d_g_y, d_g_x, lo, hi,
    KY: tl.constexpr, KX: tl.constexpr, POWER: tl.constexpr, INSIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Of each region: μ, γ, the largest |z| and the coefficients of ∇z(i) = G w̃(i) + r(i) Q(i), where

    w̃(i) = exp(-γ_y y²/4 - γ_x x²/4 - peak),  Q(i) = c + a_y y + a_x x + b_y y² + b_x x²,  y and x from μ
    r(i) = z(i) / largest, or its sign where power is 1
    """
    largest, total, mu_y, mu_x, v_y, v_x = fit(
        z, top, left, live, H, W, zy, zx, lo, hi, KY, KX, POWER, INSIDE, ACC
    )  # fmt: skip
    g_y, g_x = precision(v_y, lo, hi), precision(v_x, lo, hi)
    _, m_y, m_x, n_y, n_x, peak_y, scale_y, peak_x, scale_x = sums(
        z, top, left, live, H, W, zy, zx, mu_y, mu_x, g_y, g_x, KY, KX, INSIDE, ACC
    )
    # ∂μ/∂a = (y - μ) / Σa,  ∂γ/∂a = -γ² ((y - μ)² - v) / Σa where no bound holds it, with a = (|z| / largest)^power
    unit = POWER / total / tl.maximum(largest, 1e-30)
    a_y, a_x = unit * (d_p * m_y + d_mu_y), unit * (d_p * m_x + d_mu_x)
    b_y = tl.where(1 / v_y == g_y, -unit * g_y * g_y * (d_p * n_y + d_g_y), 0.0)
    b_x = tl.where(1 / v_x == g_x, -unit * g_x * g_x * (d_p * n_x + d_g_x), 0.0)
    c = -tl.where(b_y == 0, 0.0, b_y * v_y) - tl.where(b_x == 0, 0.0, b_x * v_x)
    return mu_y, mu_x, g_y, g_x, d_p * scale_y * scale_x, peak_y + peak_x, largest, c, a_y, a_x, b_y, b_x


@triton.jit
def relative(v, largest, POWER: tl.constexpr):
    r = v / largest
    if POWER == 1:
        r = tl.where(v > 0, 1.0, tl.where(v < 0, -1.0, 0.0)).to(v.dtype)
    return r


@triton.jit
def load_slopes(
    d_p, d_mu, ma, d_gamma, ga, live, D_MU: tl.constexpr, D_GAMMA: tl.constexpr, ACC: tl.constexpr
):  # fmt: skip
    """∇p, ∇μ_y, ∇μ_x, ∇γ_y, ∇γ_x of each region; 0 for unused outputs."""
    slope = tl.load(d_p, mask=live, other=0).to(ACC)
    m_y, m_x, n_y, n_x = slope * 0, slope * 0, slope * 0, slope * 0
    if D_MU:
        m_y, m_x = tl.load(d_mu, mask=live, other=0).to(ACC), tl.load(d_mu + ma, mask=live, other=0).to(ACC)
    if D_GAMMA:
        n_y, n_x = tl.load(d_gamma, mask=live, other=0).to(ACC), tl.load(d_gamma + ga, mask=live, other=0).to(ACC)
    return slope, m_y, m_x, n_y, n_x


@triton.jit
def gradient(v, y, x, g_y, g_x, G, peak, largest, c, a_y, a_x, b_y, b_x, POWER: tl.constexpr):
    """One region's contribution to ∇z at an element (see fit_slopes)."""
    w = tl.exp(-0.25 * (g_y * y * y + g_x * x * x) - peak)
    return G * w + relative(v, largest, POWER) * (c + a_y * y + a_x * x + b_y * y * y + b_x * x * x)
