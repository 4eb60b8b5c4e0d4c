"""Convolution with small filters in fewer multiplications (Winograd; Toom and Cook).

The product of two polynomials of degrees m - 1 and K - 1 follows from their values at m + K - 1 = 8
points: 0, ±1, ±2, ±½ and ∞. So m × n outputs of a K × L filter, with m = 9 - K and n = 9 - L, take
8 × 8 multiplications per pair of maps instead of m n K L, and the sum over maps is one matrix
product per point: at 5 × 5, 64 instead of 400.

    outputs = Aᵀ [ (G f Gᵀ) ⊙ (Bᵀ patch B) ] A
"""

import torch
from torch import Tensor

from whatwhere.engines.cpu.products import Repeats, Windows, product_rows
from whatwhere.engines.cpu.records import Layer, Map
from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.simd import LANES, Lanes, load, noinline, splat, store

POINTS = 8  # along one axis
# patches at a time, at most: their products with one column of points stay in the fastest cache
TILES = 13
SMALLEST, LARGEST = 2, 7  # filter sizes for which it is used


def transform_filters(f: Tensor) -> Tensor:
    """G f Gᵀ:  [C, B, K, L] → [8 columns, 8 rows, C, B], computed in float64."""
    finite = torch.tensor([0, 1, -1, 2, -2, 0.5, -0.5], dtype=torch.float64)
    scale = torch.tensor([1, -2 / 9, -2 / 9, 1 / 90, 1 / 90, 32 / 45, 32 / 45], dtype=torch.float64)

    def values(size: int) -> Tensor:
        G = torch.zeros(POINTS, size, dtype=torch.float64)
        G[:-1] = scale[:, None] * finite[:, None] ** torch.arange(size)
        G[-1, -1] = 1
        return G

    return torch.einsum("yi,cbij,xj->xycb", values(f.shape[2]), f.double(), values(f.shape[3])).to(
        f.dtype
    )


@inline_jit
def _transform_in(state: Array, at: int, step: int, to: int, stride: int) -> None:
    """Bᵀ applied to 8 vectors at a distance of `step`."""
    d0, d1, d2, d3 = _load_four(state, at, step)
    d4, d5, d6, d7 = _load_four(state, at + 4 * step, step)
    store(state, to, d0 - d6 + (d4 - d2) * 5.25)
    even, odd = d2 + d6 - d4 * 4.25, d1 + d5 - d3 * 4.25
    store(state, to + stride, even + odd)
    store(state, to + 2 * stride, even - odd)
    even, odd = d2 * 0.25 - d4 * 1.25 + d6, d1 * 0.5 - d3 * 2.5 + d5 * 2
    store(state, to + 3 * stride, even + odd)
    store(state, to + 4 * stride, even - odd)
    even, odd = d2 * 4 - d4 * 5 + d6, d1 * 2 - d3 * 2.5 + d5 * 0.5
    store(state, to + 5 * stride, even + odd)
    store(state, to + 6 * stride, even - odd)
    store(state, to + 7 * stride, d7 - d1 + (d3 - d5) * 5.25)


@inline_jit
def _transform_out(
    state: Array, source: tuple[int, int], target: tuple[int, int], m: int, count: int
) -> None:
    """Aᵀ applied to 8 vectors: the first `count` of m outputs. Source and target: the first, and
    the distance."""
    (at, step), (to, stride) = source, target
    m0, m1, m2, m3 = _load_four(state, at, step)
    m4, m5, m6, m7 = _load_four(state, at + 4 * step, step)
    s1, s2, s3 = m1 + m2, m3 + m4, m5 + m6
    d1, d2, d3 = m1 - m2, (m3 - m4) * 2, (m5 - m6) * 0.5
    if m == 4 and count == 4:
        store(state, to, m0 + s1 + s2 + s3)
        store(state, to + stride, d1 + d2 + d3)
        store(state, to + 2 * stride, s1 + s2 * 4 + s3 * 0.25)
        store(state, to + 3 * stride, d1 + d2 * 4 + d3 * 0.25 + m7)
        return
    up, down = 1.0, 1.0
    for i in range(0, count, 2):
        even, odd = s1 + s2 * up + s3 * down, d1 + d2 * up + d3 * down
        even = even + m0 if i == 0 else even
        even = even + m7 if i == m - 1 else even
        odd = odd + m7 if i == m - 2 else odd
        store(state, to + i * stride, even)
        if i + 1 < count:
            store(state, to + (i + 1) * stride, odd)
        up, down = up * 4, down * 0.25


@inline_jit
def _load_four(state: Array, at: int, step: int) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    return (
        load(state, at),
        load(state, at + step),
        load(state, at + 2 * step),
        load(state, at + 3 * step),
    )


@inline_jit
def _patch_in(state: Array, patch: Map, work: int, to: int) -> None:
    """Bᵀ patch B of one patch and LANES maps; beyond its rows and columns the patch is zero."""
    at, pitch, step = patch.at, patch.pitch, patch.maps
    if patch.rows < POINTS or patch.columns < POINTS:
        zeros = splat(state, 0)
        for y in range(POINTS):
            for x in range(POINTS):
                inside = y < patch.rows and x < patch.columns
                value = load(state, at + y * pitch + x * step) if inside else zeros
                store(state, work + (POINTS * POINTS + y * POINTS + x) * LANES, value)
        at, pitch, step = work + POINTS * POINTS * LANES, POINTS * LANES, LANES
    for y in range(POINTS):
        _transform_in(state, at + y * pitch, step, work + y * POINTS * LANES, LANES)
    point = TILES * patch.maps
    for x in range(POINTS):
        _transform_in(state, work + x * LANES, POINTS * LANES, to + x * POINTS * point, point)


@inline_jit
def _columns_out(state: Array, at: int, maps: int, m: int, height: int, to: int) -> None:
    """Aᵀ applied to one column of points of one tile, all maps: the first `height` of m rows."""
    point = TILES * maps
    for b in range(0, maps, LANES):
        _transform_out(state, (at + b, point), (to + b, POINTS * point), m, height)


@inline_jit
def _rows_out(state: Array, at: int, m: int, tile: Map) -> None:
    """Apply A to the rows of one tile, all maps: the rows and columns of outputs that exist."""
    point = TILES * tile.maps
    for b in range(0, tile.maps, LANES):
        for y in range(tile.rows):
            source, target = (
                (at + b + y * POINTS * point, point),
                (tile.at + b + y * tile.pitch, tile.maps),
            )
            _transform_out(state, source, target, m, tile.columns)


@jit
def correlate(state: Array, filters: Array, layer: Layer, f: int, source: Map, target: Map) -> None:
    """out(y, x) = Σ source(y + i, x + j) · f(i, j), for the rows and columns of the target.

    One column of points after the other: its products are still in the fastest cache when they are
    transformed.
    """
    noinline()
    depth, maps, rows, columns = source.maps, target.maps, target.rows, target.columns
    m, n, point, patches = (
        POINTS + 1 - layer.size_y,
        POINTS + 1 - layer.size_x,
        TILES * maps,
        layer.patches,
    )
    across, halves = -(-columns // n), layer.products + POINTS * TILES * maps
    tiles = -(-rows // m) * across
    group = -(-tiles // -(-tiles // TILES))
    for first in range(0, tiles, group):
        count = min(group, tiles - first)
        for i in range(count):
            y, x = (first + i) // across * m, (first + i) % across * n
            for c in range(0, depth, LANES):
                at, to = source.at + y * source.pitch + x * depth + c, patches + i * depth + c
                patch = Map(
                    at, source.pitch, depth, rows + POINTS - m - y, columns + POINTS - n - x
                )
                _patch_in(state, patch, layer.work, to)
        for x in range(POINTS):
            repeats = Repeats(POINTS, point, TILES * depth, depth * maps, count)
            windows = Windows(patches + x * POINTS * TILES * depth, depth, 0, 1, depth)
            matrix = (f + x * POINTS * depth * maps, maps)
            product_rows(state, filters, repeats, (layer.products, maps), windows, matrix)
            for i in range(count):
                height = min(m, rows - (first + i) // across * m)
                _columns_out(
                    state, layer.products + i * maps, maps, m, height, halves + x * point + i * maps
                )
        for i in range(count):
            y, x = (first + i) // across * m, (first + i) % across * n
            to = target.at + y * target.pitch + x * maps
            _rows_out(
                state,
                halves + i * maps,
                n,
                Map(to, target.pitch, maps, min(m, rows - y), min(n, columns - x)),
            )
