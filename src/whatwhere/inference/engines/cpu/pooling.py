"""Pooling, unpooling and the pooling variables of one image, LANES maps at a time.

Regions of 2×2, the paper's, have a shorter computation: with w² = q on the two elements of an axis,
q₁ = 1 / (1 + e^(-γμ)).
"""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import (
    LANES,
    any_nonzero,
    fma,
    load,
    maximum,
    noinline,
    rsqrt,
    splat,
    store,
)
from whatwhere.inference.engines.jit.vector_math import exponential, pair_weights

Layer = Any  # one row of the table in `layout`


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


@jit
def unpool(state: Array, layer: Layer, source: int) -> None:
    """z = w_y w_x p everywhere, times the weight along maps in 3-D; summed where regions overlap."""
    noinline()
    B, s, overlap = layer.maps, layer.pool, layer.stride < layer.pool
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
                for h in range(layer.depth):
                    part = p * load(state, w_at + b + (2 * s + h) * B) if layer.depth > 1 else p
                    spread(state, layer, part, w_at + b, z_at + b + h * B, overlap)


@jit
def spread(state: Array, layer: Layer, p: Any, w: int, z: int, add: bool) -> None:
    """LANES features over one plane of their regions, z = w_y w_x p, added to what is there or in place of it."""
    B, s, step, pitch = layer.maps, layer.pool, layer.z_maps, layer.z_columns * layer.z_maps
    if s == 2 and not add:
        x0, x1 = load(state, w + 2 * B), load(state, w + 3 * B)
        top, bottom = p * load(state, w), p * load(state, w + B)
        store(state, z, top * x0)
        store(state, z + step, top * x1)
        store(state, z + pitch, bottom * x0)
        store(state, z + pitch + step, bottom * x1)
        return
    for i in range(s):
        line = p * load(state, w + i * B)
        for j in range(s):
            at, weight = z + i * pitch + j * step, load(state, w + (s + j) * B)
            store(state, at, fma(line, weight, load(state, at)) if add else line * weight)


@jit
def pool(state: Array, layer: Layer) -> None:
    """The error at z_k to the error at p_k:  Σ w_y w_x error, and in 3-D the same along maps."""
    noinline()
    B, s = layer.maps, layer.pool
    for row in range(layer.rows):
        for column in range(layer.columns):
            e_at, w_at = element_offset(layer, layer.error, row, column), weights_offset(layer, row, column)
            z_at = region_offset(layer, layer.z_error, row, column)
            for b in range(0, B, LANES):
                pooled = pool_plane(state, layer, w_at + b, z_at + b)
                if layer.depth > 1:
                    pooled = pooled * load(state, w_at + b + 2 * s * B)
                for h in range(1, layer.depth):
                    plane = pool_plane(state, layer, w_at + b, z_at + b + h * B)
                    pooled = fma(plane, load(state, w_at + b + (2 * s + h) * B), pooled)
                store(state, e_at + b, pooled)


@jit
def pool_plane(state: Array, layer: Layer, w: int, z: int) -> Any:
    """Σ w_y w_x error over one plane of LANES regions."""
    B, s, step, pitch = layer.maps, layer.pool, layer.z_maps, layer.z_columns * layer.z_maps
    if s == 2:
        x0, x1 = load(state, w + 2 * B), load(state, w + 3 * B)
        top = fma(load(state, z), x0, load(state, z + step) * x1)
        bottom = fma(load(state, z + pitch), x0, load(state, z + pitch + step) * x1)
        return fma(top, load(state, w), bottom * load(state, w + B))
    pooled = splat(state, 0)
    for i in range(s):
        line = splat(state, 0)
        for j in range(s):
            line = fma(load(state, z + i * pitch + j * step), load(state, w + (s + j) * B), line)
        pooled = fma(line, load(state, w + i * B), pooled)
    return pooled


@jit
def compute_axis_weights(state: Array, mu: Any, gamma: Any, w_at: int, B: int, s: int, inside: int) -> None:
    """w = √q, q = softmax(-γ (x - μ)² / 2), over the first `inside` of s elements, which lie in the map."""
    if s == 2 and inside == 2:
        first, second = pair_weights(state, mu, gamma)
        store(state, w_at, first)
        store(state, w_at + B, second)
        return
    quarter = gamma * -0.25
    most = splat(state, -1e30)
    for i in range(inside):
        d = splat(state, i - (s - 1) / 2) - mu
        most = maximum(most, quarter * d * d)
    norm = splat(state, 0)
    for i in range(inside):
        d = splat(state, i - (s - 1) / 2) - mu
        w = exponential(state, quarter * d * d - most)
        norm = fma(w, w, norm)
        store(state, w_at + i * B, w)
    scale = rsqrt(norm)
    for i in range(s):
        store(state, w_at + i * B, load(state, w_at + i * B) * scale if i < inside else splat(state, 0))


@inline_jit
def store_pair_weights(state: Array, w: int, B: int, my: Any, gy: Any, mx: Any, gx: Any) -> None:
    """The weights of LANES regions of 2×2, stored after both axes are computed: they then run in parallel."""
    y0, y1 = pair_weights(state, my, gy)
    x0, x1 = pair_weights(state, mx, gx)
    store(state, w, y0)
    store(state, w + B, y1)
    store(state, w + 2 * B, x0)
    store(state, w + 3 * B, x1)


@jit
def compute_weights(state: Array, layer: Layer) -> None:
    """The weights of every region from its pooling variables."""
    noinline()
    B, s, axes = layer.maps, layer.pool, layer.axes
    for row in range(layer.rows):
        for column in range(layer.columns):
            region, w_at = row * layer.columns + column, weights_offset(layer, row, column)
            down, right = layer.height - row * layer.stride, layer.width - column * layer.stride
            for b in range(0, B, LANES):
                if s == 2 and axes == 2 and down > 1 and right > 1:
                    mu, gamma = layer.mu + region * 2 * B + b, layer.gamma + region * 2 * B + b
                    my, mx, gy, gx = load(state, mu), load(state, mu + B), load(state, gamma), load(state, gamma + B)
                    store_pair_weights(state, w_at + b, B, my, gy, mx, gx)
                    continue
                for axis in range(axes):
                    theta, w, size = (region * axes + axis) * B + b, w_at + axis * s * B + b, s
                    left = down if axis == 0 else right
                    if axis == 2:
                        size, left = layer.depth, layer.depth
                    mu, gamma = load(state, layer.mu + theta), load(state, layer.gamma + theta)
                    compute_axis_weights(state, mu, gamma, w, B, size, min(size, left))


@jit
def bound_pooling(state: Array, layer: Layer, gamma_min: float, gamma_max: float) -> None:
    """All that an update does to regions of one element: their gradients are zero."""
    noinline()
    for i in range(layer.rows * layer.columns * 2 * layer.maps):
        state[layer.mu + i] = 0
        state[layer.gamma + i] = min(max(state[layer.gamma + i], gamma_min), gamma_max)
