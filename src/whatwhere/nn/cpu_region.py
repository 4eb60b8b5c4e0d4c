"""Gaussian pooling of LANES regions at a time: the formulas of `triton_region` on vectors.

Work memory holds one row of numbers per element of a region, M numbers apart: element k of region m is at k · M + m.
"""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.jit import Array, jit
from whatwhere.inference.engines.jit.simd import load, splat, store
from whatwhere.inference.engines.jit.vector_math import absolute, exp, fma, formulas, maximum, minimum, rsqrt, where


@jit
def strength(a: Any, scale: Any, power: int) -> Any:
    """|s|^power, relative to the largest |s| of the region."""
    a = absolute(a) * scale
    return a * a if power == 2 else a


@jit
def fit(work: Array, z: int, M: int, KY: int, KX: int, power: int) -> Any:
    """The moments of each region: largest |s|, Σ|s|^power (1 in empty regions), μ and variance along both axes."""
    zero, one = splat(work, 0), splat(work, 1)
    largest = zero
    for k in range(KY * KX):
        largest = maximum(largest, absolute(load(work, z + k * M)))
    scale = one / where(largest > 0, largest, one)
    total, mu_y, mu_x = zero, zero, zero
    for i in range(KY):
        row = zero
        for j in range(KX):
            a = strength(load(work, z + (i * KX + j) * M), scale, power)
            row = row + a
            mu_x = fma(a, splat(work, j - (KX - 1) / 2), mu_x)
        total = total + row
        mu_y = fma(row, splat(work, i - (KY - 1) / 2), mu_y)
    total = where(total > 0, total, one)
    norm = one / total
    mu_y, mu_x = mu_y * norm, mu_x * norm
    v_y, v_x = zero, zero
    for i in range(KY):
        y = splat(work, i - (KY - 1) / 2) - mu_y
        for j in range(KX):
            a = strength(load(work, z + (i * KX + j) * M), scale, power)
            x = splat(work, j - (KX - 1) / 2) - mu_x
            v_y, v_x = fma(a, y * y, v_y), fma(a, x * x, v_x)
    return largest, total, mu_y, mu_x, v_y * norm, v_x * norm


@jit
def precision(like: Array, variance: Any, largest: Any, lo: float, hi: float) -> Any:
    """γ = 1 / variance, bounded; flat where the region is empty."""
    gamma = splat(like, 1) / maximum(variance, splat(like, 1 / max(hi, 1.0)))
    return minimum(maximum(where(largest > 0, gamma, splat(like, 0)), splat(like, lo)), splat(like, hi))


@jit
def axis_weights(work: Array, mu: Any, gamma: Any, w: int, M: int, K: int, inside: bool, outside: int) -> None:
    """w = √q of the K elements of an axis; at `outside` is a large negative number for each element outside the map."""
    if K == 2 and inside:
        first, second = formulas.pair_weights(mu, gamma)
        store(work, w, first)
        store(work, w + M, second)
        return
    peak = splat(work, -1e30)
    for i in range(K):
        d = splat(work, i - (K - 1) / 2) - mu
        exponent = gamma * -0.25 * d * d
        exponent = exponent if inside else exponent + load(work, outside + i * M)
        store(work, w + i * M, exponent)
        peak = maximum(peak, exponent)
    norm = splat(work, 0)
    for i in range(K):
        e = exp(load(work, w + i * M) - peak)
        norm = fma(e, e, norm)
        store(work, w + i * M, e)
    scale = rsqrt(norm)
    for i in range(K):
        store(work, w + i * M, load(work, w + i * M) * scale)


@jit
def pooled(work: Array, z: int, w: int, M: int, KY: int, KX: int) -> Any:
    """P = Σ w z of each region."""
    p = splat(work, 0)
    for i in range(KY):
        row = splat(work, 0)
        for j in range(KX):
            row = fma(load(work, z + (i * KX + j) * M), load(work, w + (KY + j) * M), row)
        p = fma(row, load(work, w + i * M), p)
    return p


@jit
def axis_slopes(
    work: Array, z: int, w: int, v: int, mu: Any, gamma: Any, p: Any, M: int, K: int, L: int, along: int, across: int
) -> Any:
    """∂P/∂μ and ∂P/∂γ along an axis of K elements with weights at `w`; the other has L elements with weights at `v`."""
    m, s, q, r = splat(work, 0), splat(work, 0), splat(work, 0), splat(work, 0)
    for i in range(K):
        weight, d = load(work, w + i * M), splat(work, i - (K - 1) / 2) - mu
        line = splat(work, 0)
        for j in range(L):
            line = fma(load(work, z + (i * along + j * across) * M), load(work, v + j * M), line)
        line = line * weight * d
        m, s = m + line, fma(line, d, s)
        square = weight * weight * d
        q, r = q + square, fma(square, d, r)
    return gamma * (m - p * q) * 0.5, (p * r - s) * 0.25


@jit
def slopes(work: Array, z: int, w: int, mu_y: Any, mu_x: Any, g_y: Any, g_x: Any, M: int, KY: int, KX: int) -> Any:
    """P of each region and its derivatives by μ_y, μ_x, γ_y, γ_x."""
    p = pooled(work, z, w, M, KY, KX)
    v = w + KY * M
    m_y, n_y = axis_slopes(work, z, w, v, mu_y, g_y, p, M, KY, KX, KX, 1)
    m_x, n_x = axis_slopes(work, z, v, w, mu_x, g_x, p, M, KX, KY, 1, KX)
    return p, m_y, m_x, n_y, n_x


@jit
def curvature(like: Array, unit: Any, variance: Any, gamma: Any, slope: Any) -> Any:
    """-unit γ² slope where γ = 1 / variance, 0 where a bound determines γ."""
    at_bound = absolute(splat(like, 1) / variance - gamma)
    return where(at_bound > 0, splat(like, 0), unit * gamma * gamma * slope * -1)


@jit
def fit_and_pool(
    work: Array, z: int, w: int, M: int, KY: int, KX: int, inside: bool, outside: int, lo: float, hi: float, power: int
) -> Any:
    """p, μ_y, μ_x, γ_y, γ_x of LANES regions."""
    largest, _, mu_y, mu_x, v_y, v_x = fit(work, z, M, KY, KX, power)
    g_y, g_x = precision(work, v_y, largest, lo, hi), precision(work, v_x, largest, lo, hi)
    axis_weights(work, mu_y, g_y, w, M, KY, inside, outside)
    axis_weights(work, mu_x, g_x, w + KY * M, M, KX, inside, outside + KY * M)
    return pooled(work, z, w, M, KY, KX), mu_y, mu_x, g_y, g_x


@jit
def fit_and_pool_gradient(
    work: Array, z: int, w: int, M: int, KY: int, KX: int, inside: bool, outside: int, lo: float, hi: float, power: int,
    d_p: Any, d_mu_y: Any, d_mu_x: Any, d_g_y: Any, d_g_x: Any,
) -> None:  # fmt: skip
    """Replace the elements z by ∇z from the gradients of p, μ and γ (see `triton_region.fit_slopes`)."""
    largest, total, mu_y, mu_x, v_y, v_x = fit(work, z, M, KY, KX, power)
    g_y, g_x = precision(work, v_y, largest, lo, hi), precision(work, v_x, largest, lo, hi)
    axis_weights(work, mu_y, g_y, w, M, KY, inside, outside)
    axis_weights(work, mu_x, g_x, w + KY * M, M, KX, inside, outside + KY * M)
    _, m_y, m_x, n_y, n_x = slopes(work, z, w, mu_y, mu_x, g_y, g_x, M, KY, KX)
    scale = splat(work, 1) / where(largest > 0, largest, splat(work, 1))
    unit = scale * (splat(work, power) / total)
    a_y, a_x = unit * (d_p * m_y + d_mu_y), unit * (d_p * m_x + d_mu_x)
    b_y = curvature(work, unit, v_y, g_y, d_p * n_y + d_g_y)
    b_x = curvature(work, unit, v_x, g_x, d_p * n_x + d_g_x)
    c = (b_y * v_y + b_x * v_x) * -1
    for i in range(KY):
        y, weight = splat(work, i - (KY - 1) / 2) - mu_y, d_p * load(work, w + i * M)
        of_row = c + a_y * y + b_y * y * y
        for j in range(KX):
            x, k = splat(work, j - (KX - 1) / 2) - mu_x, z + (i * KX + j) * M
            value = load(work, k)
            relative = value * scale
            if power == 1:
                sign = where(value > 0, splat(work, 1), splat(work, 0))
                relative = sign - where(value * -1 > 0, splat(work, 1), splat(work, 0))
            share = relative * (of_row + a_x * x + b_x * x * x)
            store(work, k, fma(weight, load(work, w + (KY + j) * M), share))
