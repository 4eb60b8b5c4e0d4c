"""The compiled loops of Gaussian pooling on the CPU, over rows of regions.

All maps are flat arrays with strides. A tile is a number of rows of regions, counted through all images and channels.
Its elements are copied to work memory, one row of numbers per element of a region, where regions are processed LANES at
a time; results are copied back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whatwhere.jit import Array, cached_jit, inline_jit, jit
from whatwhere.jit.simd import LANES, load, noinline, store
from whatwhere.nn.cpu_region import axis_weights, fit_and_pool, fit_and_pool_gradient, slopes

FEATURES = 10  # rows of work memory for numbers of which a region has one
OUTSIDE = -1e30  # added to the exponent of an element outside the map: its weight is exactly zero
GEOMETRY = np.dtype(
    [
        (name, np.int64)
        for name in (
            "channels", "height", "width",  # of the map
            "rows", "columns",  # of regions
            "size_y", "size_x", "stride_y", "stride_x", "padding_y", "padding_x",  # of a region
            "inside",  # whether all regions lie inside the map
            "adds",  # whether contributions to the map are added to what is there
        )
    ]
)  # fmt: skip
Geometry = Any  # one such record


@inline_jit
def row_start(row: int, g: Geometry, strides: Array) -> tuple[int, int]:
    """The offset of the plane of a row of regions, and its number y in the plane."""
    plane, y = row // g.rows, row % g.rows
    return plane // g.channels * strides[0] + plane % g.channels * strides[1], y


@jit
def load_elements(z: Array, strides: Array, g: Geometry, first: int, last: int, work: Array, M: int) -> None:
    """Copy the elements of the regions of rows first … last to work memory; zero outside the map."""
    noinline()
    step = g.stride_x * strides[3]
    for row in range(first, last):
        plane, y = row_start(row, g, strides)
        for i in range(g.size_y):
            line = y * g.stride_y - g.padding_y + i
            for j in range(g.size_x):
                to, at = (i * g.size_x + j) * M + (row - first) * g.columns, plane + line * strides[2] + j * strides[3]
                if g.inside:
                    for x in range(g.columns):
                        work[to + x] = z[at + x * step]
                    continue
                for x in range(g.columns):
                    column = x * g.stride_x - g.padding_x + j
                    there = 0 <= line < g.height and 0 <= column < g.width
                    work[to + x] = z[at - g.padding_x * strides[3] + x * step] if there else 0


@jit
def load_pairs(z: Array, strides: Array, g: Geometry, first: int, last: int, work: Array, M: int) -> None:
    """The same for regions of 2×2 inside the map with contiguous rows."""
    noinline()
    for row in range(first, last):
        plane, y = row_start(row, g, strides)
        for i in range(2):
            at, to = plane + (2 * y + i) * strides[2], 2 * i * M + (row - first) * g.columns
            for x in range(g.columns):
                work[to + x] = z[at + 2 * x]
                work[to + M + x] = z[at + 2 * x + 1]


@jit
def store_elements(z: Array, strides: Array, g: Geometry, first: int, last: int, work: Array, M: int) -> None:
    """Copy the elements of regions back to the map, or add them to it where regions overlap."""
    noinline()
    step = g.stride_x * strides[3]
    for row in range(first, last):
        plane, y = row_start(row, g, strides)
        for i in range(g.size_y):
            line = y * g.stride_y - g.padding_y + i
            for j in range(g.size_x):
                of = (i * g.size_x + j) * M + (row - first) * g.columns
                at = plane + line * strides[2] + (j - g.padding_x) * strides[3]
                for x in range(g.columns):
                    column = x * g.stride_x - g.padding_x + j
                    if g.inside or (0 <= line < g.height and 0 <= column < g.width):
                        before = z[at + x * step] if g.adds else 0
                        z[at + x * step] = before + work[of + x]


@jit
def store_pairs(z: Array, strides: Array, g: Geometry, first: int, last: int, work: Array, M: int) -> None:
    """The same for regions of 2×2 inside the map with contiguous rows."""
    noinline()
    for row in range(first, last):
        plane, y = row_start(row, g, strides)
        for i in range(2):
            at, of = plane + (2 * y + i) * strides[2], 2 * i * M + (row - first) * g.columns
            for x in range(g.columns):
                z[at + 2 * x] = work[of + x]
                z[at + 2 * x + 1] = work[of + M + x]


@jit
def load_features(
    p: Array, strides: Array, offset: int, g: Geometry, first: int, last: int, work: Array, at: int
) -> None:
    """Copy one number per region to work memory; `offset` selects an axis of μ or γ."""
    noinline()
    for row in range(first, last):
        plane, y = row_start(row, g, strides)
        start, to = offset + plane + y * strides[2], at + (row - first) * g.columns
        for x in range(g.columns):
            work[to + x] = p[start + x * strides[3]]


@jit
def store_features(
    p: Array, strides: Array, offset: int, g: Geometry, first: int, last: int, work: Array, at: int
) -> None:
    """Copy one number per region from work memory."""
    noinline()
    for row in range(first, last):
        plane, y = row_start(row, g, strides)
        start, of = offset + plane + y * strides[2], at + (row - first) * g.columns
        for x in range(g.columns):
            p[start + x * strides[3]] = work[of + x]


@jit
def load_outside(g: Geometry, first: int, last: int, work: Array, M: int, at: int) -> None:
    """OUTSIDE for each row and column of each region that lies outside the map, 0 for the others."""
    noinline()
    for row in range(first, last):
        top = row % g.rows * g.stride_y - g.padding_y
        for x in range(g.columns):
            m, left = at + (row - first) * g.columns + x, x * g.stride_x - g.padding_x
            for i in range(g.size_y):
                work[m + i * M] = 0 if 0 <= top + i < g.height else OUTSIDE
            for j in range(g.size_x):
                work[m + (g.size_y + j) * M] = 0 if 0 <= left + j < g.width else OUTSIDE


@jit
def are_pairs(g: Geometry, strides: Array) -> bool:
    """Whether regions are 2×2 without gaps or overlap, inside the map, with contiguous rows."""
    even: bool = g.size_y == 2 and g.size_x == 2 and g.stride_y == 2 and g.stride_x == 2
    return even and g.inside == 1 and strides[3] == 1


@inline_jit
def load_tile(z: Array, strides: Array, g: Geometry, first: int, last: int, work: Array, M: int, outside: int) -> None:
    """Copy the elements of a tile to work memory."""
    if are_pairs(g, strides):
        load_pairs(z, strides, g, first, last, work, M)
    else:
        load_elements(z, strides, g, first, last, work, M)
    if g.inside == 0:
        load_outside(g, first, last, work, M, outside)


@inline_jit
def store_tile(z: Array, strides: Array, g: Geometry, first: int, last: int, work: Array, M: int) -> None:
    """Copy the elements of a tile back to the map."""
    if are_pairs(g, strides):
        store_pairs(z, strides, g, first, last, work, M)
    else:
        store_elements(z, strides, g, first, last, work, M)


@inline_jit
def load_gaussians(
    mu: Array, mu_strides: Array, gamma: Array, gamma_strides: Array, g: Geometry, first: int, last: int, work: Array,
    at: int, M: int,
) -> None:  # fmt: skip
    """Copy μ_y, μ_x, γ_y, γ_x of a tile to four rows of work memory."""
    for axis in range(2):
        load_features(mu, mu_strides, axis * mu_strides[4], g, first, last, work, at + axis * M)
        load_features(gamma, gamma_strides, axis * gamma_strides[4], g, first, last, work, at + (2 + axis) * M)


@inline_jit
def store_gaussians(
    mu: Array, mu_strides: Array, gamma: Array, gamma_strides: Array, g: Geometry, first: int, last: int, work: Array,
    at: int, M: int,
) -> None:  # fmt: skip
    """Copy four rows of work memory to μ_y, μ_x, γ_y, γ_x."""
    for axis in range(2):
        store_features(mu, mu_strides, axis * mu_strides[4], g, first, last, work, at + axis * M)
        store_features(gamma, gamma_strides, axis * gamma_strides[4], g, first, last, work, at + (2 + axis) * M)


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
