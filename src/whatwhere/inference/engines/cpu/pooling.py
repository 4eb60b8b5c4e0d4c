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
def unpool(state: Array, layer: Layer, source: int) -> None:
    """z = w_y w_x p everywhere."""
    noinline()
    B, s = layer.maps, layer.pool
    pitch = layer.columns * s * B
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = element_offset(layer, source, row, column)
            w_at = layer.weights + (row * layer.columns + column) * 2 * s * B
            z_at = layer.z + row * s * pitch + column * s * B
            for b in range(0, B, LANES):
                p, w, z = load(state, p_at + b), w_at + b, z_at + b
                if s == 2:
                    x0, x1 = load(state, w + 2 * B), load(state, w + 3 * B)
                    top, bottom = p * load(state, w), p * load(state, w + B)
                    store(state, z, top * x0)
                    store(state, z + B, top * x1)
                    store(state, z + pitch, bottom * x0)
                    store(state, z + pitch + B, bottom * x1)
                    continue
                for i in range(s):
                    line = p * load(state, w + i * B)
                    for j in range(s):
                        store(state, z + i * pitch + j * B, line * load(state, w + (s + j) * B))


@jit
def pool(state: Array, layer: Layer) -> None:
    """The error at z_k to the error at p_k:  Σ w_y w_x error."""
    noinline()
    B, s = layer.maps, layer.pool
    pitch = layer.columns * s * B
    for row in range(layer.rows):
        for column in range(layer.columns):
            e_at = element_offset(layer, layer.error, row, column)
            w_at = layer.weights + (row * layer.columns + column) * 2 * s * B
            z_at = layer.z_error + row * s * pitch + column * s * B
            for b in range(0, B, LANES):
                w, z = w_at + b, z_at + b
                if s == 2:
                    x0, x1 = load(state, w + 2 * B), load(state, w + 3 * B)
                    top = fma(load(state, z), x0, load(state, z + B) * x1)
                    bottom = fma(load(state, z + pitch), x0, load(state, z + pitch + B) * x1)
                    store(state, e_at + b, fma(top, load(state, w), bottom * load(state, w + B)))
                    continue
                pooled = splat(state, 0)
                for i in range(s):
                    line = splat(state, 0)
                    for j in range(s):
                        line = fma(load(state, z + i * pitch + j * B), load(state, w + (s + j) * B), line)
                    pooled = fma(line, load(state, w + i * B), pooled)
                store(state, e_at + b, pooled)


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
    B, s = layer.maps, layer.pool
    for row in range(layer.rows):
        for column in range(layer.columns):
            region = row * layer.columns + column
            for b in range(0, B, LANES):
                for axis in range(2):
                    theta = (region * 2 + axis) * B + b
                    w = layer.weights + (region * 2 + axis) * s * B + b
                    left = layer.height - row * s if axis == 0 else layer.width - column * s
                    mu, gamma = load(state, layer.mu + theta), load(state, layer.gamma + theta)
                    compute_axis_weights(state, mu, gamma, w, B, s, min(s, left))


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
    B, s = layer.maps, layer.pool
    pitch = layer.columns * s * B
    reach, least, most = splat(state, (s - 1) / 2), splat(state, gamma_min), splat(state, gamma_max)
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = element_offset(layer, layer.features, row, column)
            region = row * layer.columns + column
            z_at = layer.z_error + row * s * pitch + column * s * B
            down, right = min(s, layer.height - row * s), min(s, layer.width - column * s)
            for b in range(0, B, LANES):
                p = load(state, p_at + b)
                if not (everywhere or any_nonzero(p)):
                    continue
                y_at, z = region * 2 * B + b, z_at + b
                x_at = y_at + B
                wy = layer.weights + region * 2 * s * B + b
                wx = wy + s * B
                my, mx = load(state, layer.mu + y_at), load(state, layer.mu + x_at)
                gy, gx = load(state, layer.gamma + y_at), load(state, layer.gamma + x_at)
                dmy, dgy = axis_gradients(state, my, wy, z, pitch, wx, B, B, s)
                dmx, dgx = axis_gradients(state, mx, wx, z, B, wy, pitch, B, s)
                far = p * step
                my, mx = my - dmy * gy * far, mx - dmx * gx * far
                gy, gx = gy - dgy * far, gx - dgx * far
                my, mx = minimum(maximum(my, reach * -1), reach), minimum(maximum(mx, reach * -1), reach)
                gy, gx = minimum(maximum(gy, least), most), minimum(maximum(gx, least), most)
                store(state, layer.mu + y_at, my)
                store(state, layer.mu + x_at, mx)
                store(state, layer.gamma + y_at, gy)
                store(state, layer.gamma + x_at, gx)
                compute_axis_weights(state, my, gy, wy, B, s, down)
                compute_axis_weights(state, mx, gx, wx, B, s, right)
