"""The step of the pooling variables of one image, LANES maps at a time: ∇θ, the bounds, the new weights.

Regions of 2×2, the paper's, have a shorter computation: both derivatives of an axis share one factor.
"""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.cpu.pooling import (
    Layer,
    compute_axis_weights,
    element_offset,
    pool_plane,
    region_offset,
    store_pair_weights,
    weights_offset,
)
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import LANES, any_nonzero, fma, load, maximum, minimum, noinline, splat, store


@jit
def update_pooling(
    state: Array, layer: Layer, step: float, gamma_min: float, gamma_max: float, everywhere: bool
) -> None:
    """θ ← bound(θ - step ∇θ) and new weights where p̂ ≠ 0; elsewhere the gradient is zero.

    `everywhere` is for the first step: variables that the caller gave may lie outside their bounds.
    """
    noinline()
    B, s, least, most = layer.maps, layer.pool, splat(state, gamma_min), splat(state, gamma_max)
    paired, across, along = s == 2 and layer.depth == 1, layer.z_maps, layer.z_columns * layer.z_maps
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
                if paired and down > 1 and right > 1:
                    move_pair(state, layer.mu + y, layer.gamma + y, w, z, across, along, B, far, least, most)
                    continue
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


@inline_jit
def move_pair(
    state: Array, mu: int, gamma: int, w: int, z: int, across: int, along: int, B: int, far: Any, least: Any, most: Any
) -> None:  # fmt: skip
    """The same for LANES regions of 2×2. Nothing is stored before all is loaded: both axes are computed in parallel."""
    y0, y1, x0, x1 = load(state, w), load(state, w + B), load(state, w + 2 * B), load(state, w + 3 * B)
    z00, z01 = load(state, z), load(state, z + across)
    z10, z11 = load(state, z + along), load(state, z + along + across)
    my, mx, gy, gx = load(state, mu), load(state, mu + B), load(state, gamma), load(state, gamma + B)
    half = far * 0.5
    slope_y = (fma(z10, x0, z11 * x1) * y0 - fma(z00, x0, z01 * x1) * y1) * (y0 * y1 * half)
    slope_x = (fma(z01, y0, z11 * y1) * x0 - fma(z00, y0, z10 * y1) * x1) * (x0 * x1 * half)
    my, gy = bounded(state, my - slope_y * gy, gy - slope_y * my, least, most)
    mx, gx = bounded(state, mx - slope_x * gx, gx - slope_x * mx, least, most)
    store_pair_weights(state, w, B, my, gy, mx, gx)
    store(state, mu, my)
    store(state, mu + B, mx)
    store(state, gamma, gy)
    store(state, gamma + B, gx)


@inline_jit
def bounded(state: Array, m: Any, g: Any, least: Any, most: Any) -> Any:
    """μ and γ of an axis with two elements within their bounds."""
    return minimum(maximum(m, splat(state, -0.5)), splat(state, 0.5)), minimum(maximum(g, least), most)


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
