"""Copies between maps and the work memory of the CPU kernels.

All maps are flat arrays with strides. A tile is a number of rows of regions, counted through all images and channels.
In work memory each element of a region has one row of M numbers, one for each region of the tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import noinline

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
