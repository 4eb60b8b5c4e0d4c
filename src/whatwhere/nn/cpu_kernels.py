"""The compiled loops of Gaussian pooling on the CPU, over tiles of regions.

The elements of a tile are copied to work memory (`cpu_memory`), where regions are processed LANES at a time
(`cpu_region`); results are copied back.
"""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.jit import Array, cached_jit
from whatwhere.inference.engines.jit.simd import LANES, load, store
from whatwhere.nn.cpu_memory import (
    load_features,
    load_gaussians,
    load_outside,
    load_tile,
    store_features,
    store_gaussians,
    store_tile,
)
from whatwhere.nn.cpu_region import axis_weights, fit_and_pool, fit_and_pool_gradient, slopes


@cached_jit
def fit_pool(source: str) -> Any:
    def fit_pool(
        first: int, last: int, tile: int, geometry: Array, work: Array, M: int,
        z: Array, z_strides: Array, p: Array, p_strides: Array, mu: Array, mu_strides: Array, gamma: Array,
        gamma_strides: Array, return_where: bool, lo: float, hi: float, power: int,
    ) -> None:  # fmt: skip
        """p, μ and γ of the rows first … last, `tile` rows at a time."""
        source  # noqa: B018
        g = geometry[0]
        KY, KX = g.size_y, g.size_x
        w = KY * KX * M
        outside = w + (KY + KX) * M
        values = outside + (KY + KX) * M
        for start in range(first, last, tile):
            end = min(start + tile, last)
            load_tile(z, z_strides, g, start, end, work, M, outside)
            for m in range(0, (end - start) * g.columns, LANES):
                pooled, mu_y, mu_x, g_y, g_x = fit_and_pool(
                    work, m, w + m, M, KY, KX, g.inside == 1, outside + m, lo, hi, power
                )
                store(work, values + m, pooled)
                if return_where:
                    store(work, values + M + m, mu_y)
                    store(work, values + 2 * M + m, mu_x)
                    store(work, values + 3 * M + m, g_y)
                    store(work, values + 4 * M + m, g_x)
            store_features(p, p_strides, 0, g, start, end, work, values)
            if return_where:
                store_gaussians(mu, mu_strides, gamma, gamma_strides, g, start, end, work, values + M, M)

    return fit_pool


@cached_jit
def fit_pool_backward(source: str) -> Any:
    def fit_pool_backward(
        first: int, last: int, tile: int, geometry: Array, work: Array, M: int,
        z: Array, z_strides: Array, d_p: Array, p_strides: Array, d_mu: Array, mu_strides: Array, d_gamma: Array,
        gamma_strides: Array, has_mu: bool, has_gamma: bool, d_z: Array, d_z_strides: Array, lo: float, hi: float,
        power: int,
    ) -> None:  # fmt: skip
        """∇z from the gradients of p, μ and γ."""
        source  # noqa: B018
        g = geometry[0]
        KY, KX = g.size_y, g.size_x
        w = KY * KX * M
        outside = w + (KY + KX) * M
        values = outside + (KY + KX) * M
        work[values : values + 5 * M] = 0
        for start in range(first, last, tile):
            end = min(start + tile, last)
            load_tile(z, z_strides, g, start, end, work, M, outside)
            load_features(d_p, p_strides, 0, g, start, end, work, values)
            for axis in range(2):
                if has_mu:
                    load_features(d_mu, mu_strides, axis * mu_strides[4], g, start, end, work, values + (1 + axis) * M)
                if has_gamma:
                    at = values + (3 + axis) * M
                    load_features(d_gamma, gamma_strides, axis * gamma_strides[4], g, start, end, work, at)
            for m in range(0, (end - start) * g.columns, LANES):
                slope, d_mu_y, d_mu_x = (
                    load(work, values + m),
                    load(work, values + M + m),
                    load(work, values + 2 * M + m),
                )
                d_g_y, d_g_x = load(work, values + 3 * M + m), load(work, values + 4 * M + m)
                fit_and_pool_gradient(
                    work, m, w + m, M, KY, KX, g.inside == 1, outside + m, lo, hi, power,
                    slope, d_mu_y, d_mu_x, d_g_y, d_g_x,
                )  # fmt: skip
            store_tile(d_z, d_z_strides, g, start, end, work, M)

    return fit_pool_backward


@cached_jit
def pool(source: str) -> Any:
    def pool(
        first: int, last: int, tile: int, geometry: Array, work: Array, M: int,
        z: Array, z_strides: Array, p: Array, p_strides: Array, mu: Array, mu_strides: Array, gamma: Array,
        gamma_strides: Array, with_slopes: bool, d_p: Array, d_p_strides: Array, d_mu: Array, d_mu_strides: Array,
        d_gamma: Array, d_gamma_strides: Array,
    ) -> None:  # fmt: skip
        """P = Σ w z into d_p; with slopes also p ∂P/∂μ and p ∂P/∂γ into d_mu and d_gamma."""
        source  # noqa: B018
        g = geometry[0]
        KY, KX = g.size_y, g.size_x
        w = KY * KX * M
        outside = w + (KY + KX) * M
        values = outside + (KY + KX) * M
        for start in range(first, last, tile):
            end = min(start + tile, last)
            load_tile(z, z_strides, g, start, end, work, M, outside)
            load_gaussians(mu, mu_strides, gamma, gamma_strides, g, start, end, work, values, M)
            if with_slopes:
                load_features(p, p_strides, 0, g, start, end, work, values + 5 * M)
            for m in range(0, (end - start) * g.columns, LANES):
                mu_y, mu_x = load(work, values + m), load(work, values + M + m)
                g_y, g_x = load(work, values + 2 * M + m), load(work, values + 3 * M + m)
                axis_weights(work, mu_y, g_y, w + m, M, KY, g.inside == 1, outside + m)
                axis_weights(work, mu_x, g_x, w + KY * M + m, M, KX, g.inside == 1, outside + KY * M + m)
                pooled, m_y, m_x, n_y, n_x = slopes(work, m, w + m, mu_y, mu_x, g_y, g_x, M, KY, KX)
                store(work, values + 4 * M + m, pooled)
                if with_slopes:
                    feature = load(work, values + 5 * M + m)
                    store(work, values + m, m_y * feature)
                    store(work, values + M + m, m_x * feature)
                    store(work, values + 2 * M + m, n_y * feature)
                    store(work, values + 3 * M + m, n_x * feature)
            store_features(d_p, d_p_strides, 0, g, start, end, work, values + 4 * M)
            if with_slopes:
                store_gaussians(d_mu, d_mu_strides, d_gamma, d_gamma_strides, g, start, end, work, values, M)

    return pool


@cached_jit
def unpool(source: str) -> Any:
    def unpool(
        first: int, last: int, tile: int, geometry: Array, work: Array, M: int,
        p: Array, p_strides: Array, mu: Array, mu_strides: Array, gamma: Array, gamma_strides: Array,
        z: Array, z_strides: Array,
    ) -> None:  # fmt: skip
        """z(i) = Σ_j w(i) p(j)."""
        source  # noqa: B018
        g = geometry[0]
        KY, KX = g.size_y, g.size_x
        w = KY * KX * M
        outside = w + (KY + KX) * M
        values = outside + (KY + KX) * M
        for start in range(first, last, tile):
            end = min(start + tile, last)
            if g.inside == 0:
                load_outside(g, start, end, work, M, outside)
            load_gaussians(mu, mu_strides, gamma, gamma_strides, g, start, end, work, values, M)
            load_features(p, p_strides, 0, g, start, end, work, values + 4 * M)
            for m in range(0, (end - start) * g.columns, LANES):
                mu_y, mu_x = load(work, values + m), load(work, values + M + m)
                g_y, g_x = load(work, values + 2 * M + m), load(work, values + 3 * M + m)
                axis_weights(work, mu_y, g_y, w + m, M, KY, g.inside == 1, outside + m)
                axis_weights(work, mu_x, g_x, w + KY * M + m, M, KX, g.inside == 1, outside + KY * M + m)
                feature = load(work, values + 4 * M + m)
                for i in range(KY):
                    row = feature * load(work, w + i * M + m)
                    for j in range(KX):
                        store(work, (i * KX + j) * M + m, row * load(work, w + (KY + j) * M + m))
            store_tile(z, z_strides, g, start, end, work, M)

    return unpool
