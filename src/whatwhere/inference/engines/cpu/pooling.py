"""Pooling, unpooling and the weights of one image, LANES maps at a time."""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.cpu.records import Layer
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.region import Axis, axis_weights, pool_plane, spread
from whatwhere.inference.engines.jit.simd import LANES, any_nonzero, load, noinline, splat, store
from whatwhere.inference.engines.jit.vector_math import fma, formulas


@jit
def element_offset(layer: Layer, start: int, row: int, column: int) -> int:
    """The offset of the maps of one element of p_k, in a signal that begins at `start`."""
    pitch: int = layer.columns + 2 * layer.border
    offset: int = start + ((row + layer.border) * pitch + column + layer.border) * layer.maps
    return offset


@jit
def region_offset(layer: Layer, start: int, row: int, column: int) -> int:
    """The offset of the first element of a region, in an unpooled map that begins at `start`."""
    offset: int = start + (row * layer.z_columns + column) * layer.stride * layer.z_maps
    return offset


@jit
def weights_offset(layer: Layer, row: int, column: int) -> int:
    """The offset of the weights of a region: along rows, along columns, and where m > 1 along maps."""
    count = 2 * layer.pool + (layer.depth if layer.axes == 3 else 0)
    offset: int = layer.weights + (row * layer.columns + column) * count * layer.maps
    return offset


@inline_jit
def axes_of(layer: Layer) -> tuple[Axis, Axis, Axis]:
    """Rows, columns and maps of a layer's regions."""
    s, B = layer.pool, layer.maps
    rows, columns = Axis(s, layer.z_columns * layer.z_maps, 0, B), Axis(s, layer.z_maps, s * B, B)
    return rows, columns, Axis(layer.depth, B, 2 * s * B, B)


@jit
def unpool(state: Array, layer: Layer, source: int) -> None:
    """z = w_y w_x p everywhere, times the weight along maps in 3-D; summed where regions overlap."""
    noinline()
    B, overlap, (y, x, d) = layer.maps, layer.stride < layer.pool, axes_of(layer)
    if overlap:
        for i in range(layer.z, layer.z + layer.z_rows * layer.z_columns * layer.z_maps, LANES):
            store(state, i, splat(state, 0))
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at, w_at = element_offset(layer, source, row, column), weights_offset(layer, row, column)
            z_at = region_offset(layer, layer.z, row, column)
            for b in range(0, B, LANES):
                p = load(state, p_at + b)
                if overlap and not any_nonzero(p):
                    continue
                for h in range(d.size):
                    part = p * load(state, w_at + b + d.weights + h * B) if d.size > 1 else p
                    spread(state, z_at + b + h * B, w_at + b, part, (y, x), overlap)


@jit
def pool(state: Array, layer: Layer) -> None:
    """The error at z_k to the error at p_k:  Σ w_y w_x error, and in 3-D the same along maps."""
    noinline()
    B, (y, x, d) = layer.maps, axes_of(layer)
    for row in range(layer.rows):
        for column in range(layer.columns):
            e_at, w_at = element_offset(layer, layer.error, row, column), weights_offset(layer, row, column)
            z_at = region_offset(layer, layer.z_error, row, column)
            for b in range(0, B, LANES):
                w = w_at + b
                pooled = pool_plane(state, z_at + b, w, y, x)
                if d.size > 1:
                    pooled = pooled * load(state, w + d.weights)
                for h in range(1, d.size):
                    plane = pool_plane(state, z_at + b + h * B, w, y, x)
                    pooled = fma(plane, load(state, w + d.weights + h * B), pooled)
                store(state, e_at + b, pooled)


@inline_jit
def store_pair_weights(state: Array, w: int, B: int, y: Any, x: Any) -> None:
    """The weights of LANES regions of 2×2 with θ = (μ, γ) along rows and columns, stored after both are computed: these
    then run in parallel."""
    y0, y1 = formulas.pair_weights(y[0], y[1])
    x0, x1 = formulas.pair_weights(x[0], x[1])
    store(state, w, y0)
    store(state, w + B, y1)
    store(state, w + 2 * B, x0)
    store(state, w + 3 * B, x1)


@inline_jit
def elements_inside(layer: Layer, row: int, column: int) -> tuple[int, int, int]:
    """How many elements of a region lie in the map, along rows, columns and maps."""
    s, down, right = layer.pool, layer.height - row * layer.stride, layer.width - column * layer.stride
    return min(s, down), min(s, right), layer.depth


@jit
def compute_weights(state: Array, layer: Layer) -> None:
    """The weights of every region from its pooling variables."""
    noinline()
    B, axes, own = layer.maps, layer.axes, axes_of(layer)
    for row in range(layer.rows):
        for column in range(layer.columns):
            w_at, inside = weights_offset(layer, row, column), elements_inside(layer, row, column)
            for b in range(0, B, LANES):
                theta = (row * layer.columns + column) * axes * B + b
                mu, gamma = layer.mu + theta, layer.gamma + theta
                if layer.pool == 2 and axes == 2 and inside[0] == 2 and inside[1] == 2:
                    y, x = (load(state, mu), load(state, gamma)), (load(state, mu + B), load(state, gamma + B))
                    store_pair_weights(state, w_at + b, B, y, x)
                    continue
                for a in range(axes):
                    along = load(state, mu + a * B), load(state, gamma + a * B)
                    axis_weights(state, w_at + b, own[a], along, inside[a], 0)


@jit
def bound_pooling(state: Array, layer: Layer, gamma_min: float, gamma_max: float) -> None:
    """All that an update does to regions of one element: their gradients are zero."""
    noinline()
    for i in range(layer.rows * layer.columns * 2 * layer.maps):
        state[layer.mu + i] = 0
        state[layer.gamma + i] = min(max(state[layer.gamma + i], gamma_min), gamma_max)
