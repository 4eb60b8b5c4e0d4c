"""Pooling, unpooling and the pooling variables of one image, LANES maps at a time.

Regions of 2×2, the paper's, have a shorter computation: with w² = q on the two elements of an axis,
q₁ = 1 / (1 + e^(-γμ)), and both derivatives share one factor.
"""

from __future__ import annotations

from typing import Any

from whatwhere.jit import Array, jit
from whatwhere.jit.simd import (
    LANES,
    any_nonzero,
    fma,
    load,
    maximum,
    minimum,
    noinline,
    rsqrt,
    splat,
    store,
)
from whatwhere.jit.vector_math import exponential, pair_weights

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


@jit
def compute_weights(state: Array, layer: Layer) -> None:
    """The weights of every region from its pooling variables."""
    noinline()
    B, s, axes = layer.maps, layer.pool, layer.axes
    for row in range(layer.rows):
        for column in range(layer.columns):
            region, w_at = row * layer.columns + column, weights_offset(layer, row, column)
            for b in range(0, B, LANES):
                for axis in range(axes):
                    theta, w, size = (region * axes + axis) * B + b, w_at + axis * s * B + b, s
                    left = layer.height - row * layer.stride if axis == 0 else layer.width - column * layer.stride
                    if axis == 2:
                        size, left = layer.depth, layer.depth
                    mu, gamma = load(state, layer.mu + theta), load(state, layer.gamma + theta)
                    compute_axis_weights(state, mu, gamma, w, B, size, min(size, left))


@jit
def axis_gradients(state: Array, mu: Any, w: int, z: int, along: int, other: int, across: int, B: int, s: int) -> Any:
    """Half of ∂/∂μ without γ p̂, and of ∂/∂γ without p̂, along one axis (see `ops.pooling.pooling_gradient`)."""
    if s == 2:
        w0, w1, v0, v1 = load(state, w), load(state, w + B), load(state, other), load(state, other + B)
        first = fma(load(state, z), v0, load(state, z + across) * v1)
        second = fma(load(state, z + along), v0, load(state, z + along + across) * v1)
        common = w0 * w1 * (second * w0 - first * w1) * 0.5
        return common, common * mu
    mean, variance = splat(state, 0), splat(state, 0)
    for i in range(s):
        q = load(state, w + i * B) * load(state, w + i * B)
        d = splat(state, i - (s - 1) / 2) - mu
        mean, variance = fma(q, d, mean), fma(q, d * d, variance)
    d_mu, d_gamma = splat(state, 0), splat(state, 0)
    for i in range(s):
        slope = splat(state, 0)
        for j in range(s):
            slope = fma(load(state, z + i * along + j * across), load(state, other + j * B), slope)
        slope = slope * load(state, w + i * B)
        d = splat(state, i - (s - 1) / 2) - mu
        d_mu, d_gamma = fma(slope, d - mean, d_mu), fma(slope, variance - d * d, d_gamma)
    return d_mu * 0.5, d_gamma * 0.25


@jit
def map_gradients(state: Array, layer: Layer, mu: Any, w: int, z: int) -> Any:
    """The same along maps: their planes, pooled, are the elements of this axis."""
    B, s, m = layer.maps, layer.pool, layer.depth
    mean, variance = splat(state, 0), splat(state, 0)
    for h in range(m):
        q = load(state, w + (2 * s + h) * B) * load(state, w + (2 * s + h) * B)
        d = splat(state, h - (m - 1) / 2) - mu
        mean, variance = fma(q, d, mean), fma(q, d * d, variance)
    d_mu, d_gamma = splat(state, 0), splat(state, 0)
    for h in range(m):
        slope = pool_plane(state, layer, w, z + h * B) * load(state, w + (2 * s + h) * B)
        d = splat(state, h - (m - 1) / 2) - mu
        d_mu, d_gamma = fma(slope, d - mean, d_mu), fma(slope, variance - d * d, d_gamma)
    return d_mu * 0.5, d_gamma * 0.25


@jit
def bound_pooling(state: Array, layer: Layer, gamma_min: float, gamma_max: float) -> None:
    """All that an update does to regions of one element: their gradients are zero."""
    noinline()
    for i in range(layer.rows * layer.columns * 2 * layer.maps):
        state[layer.mu + i] = 0
        state[layer.gamma + i] = min(max(state[layer.gamma + i], gamma_min), gamma_max)


@jit
def update_pooling(
    state: Array, layer: Layer, step: float, gamma_min: float, gamma_max: float, everywhere: bool
) -> None:
    """θ ← bound(θ - step ∇θ) and new weights where p̂ ≠ 0; elsewhere the gradient is zero.

    `everywhere` is for the first step: variables that the caller gave may lie outside their bounds.
    """
    noinline()
    B, s, least, most = layer.maps, layer.pool, splat(state, gamma_min), splat(state, gamma_max)
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at, w_at = element_offset(layer, layer.features, row, column), weights_offset(layer, row, column)
            theta = (row * layer.columns + column) * layer.axes * B
            z_at = region_offset(layer, layer.z_error, row, column)
            down, right = layer.height - row * layer.stride, layer.width - column * layer.stride
            for b in range(0, B, LANES):
                p = load(state, p_at + b)
                if not (everywhere or any_nonzero(p)):
                    continue
                y, z, w, far = theta + b, z_at + b, w_at + b, p * step
                x, depth = y + B, y + 2 * B
                dmy, dgy, dmx, dgx = plane_gradients(state, layer, y, w, z)
                if layer.depth > 1:
                    weight = load(state, w + 2 * s * B)
                    dmy, dgy, dmx, dgx = dmy * weight, dgy * weight, dmx * weight, dgx * weight
                    for h in range(1, layer.depth):
                        weight = load(state, w + (2 * s + h) * B)
                        ey, fy, ex, fx = plane_gradients(state, layer, y, w, z + h * B)
                        dmy, dgy = fma(ey, weight, dmy), fma(fy, weight, dgy)
                        dmx, dgx = fma(ex, weight, dmx), fma(fx, weight, dgx)
                    dmd, dgd = map_gradients(state, layer, load(state, layer.mu + depth), w, z)
                    move_axis(state, layer, depth, w + 2 * s * B, dmd, dgd, far, least, most, layer.depth, layer.depth)
                move_axis(state, layer, y, w, dmy, dgy, far, least, most, s, min(s, down))
                move_axis(state, layer, x, w + s * B, dmx, dgx, far, least, most, s, min(s, right))


@jit
def plane_gradients(state: Array, layer: Layer, theta: int, w: int, z: int) -> Any:
    """`axis_gradients` along rows and along columns, of one plane of LANES regions."""
    B, s, step, pitch = layer.maps, layer.pool, layer.z_maps, layer.z_columns * layer.z_maps
    my, mx = load(state, layer.mu + theta), load(state, layer.mu + theta + B)
    dmy, dgy = axis_gradients(state, my, w, z, pitch, w + s * B, step, B, s)
    dmx, dgx = axis_gradients(state, mx, w + s * B, z, step, w, pitch, B, s)
    return dmy, dgy, dmx, dgx


@jit
def move_axis(
    state: Array, layer: Layer, theta: int, w: int, d_mu: Any, d_gamma: Any, far: Any, least: Any, most: Any,
    s: int, inside: int,
) -> None:  # fmt: skip
    """The step of one axis with s elements, of which the first `inside` lie in the map, and its new weights."""
    reach, mu, gamma = splat(state, (s - 1) / 2), load(state, layer.mu + theta), load(state, layer.gamma + theta)
    mu, gamma = mu - d_mu * gamma * far, gamma - d_gamma * far
    mu, gamma = minimum(maximum(mu, reach * -1), reach), minimum(maximum(gamma, least), most)
    store(state, layer.mu + theta, mu)
    store(state, layer.gamma + theta, gamma)
    compute_axis_weights(state, mu, gamma, w, layer.maps, s, inside)
