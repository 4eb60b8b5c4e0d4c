"""The start of one image: load its latents, fit the pooling variables that are not given, compute the weights."""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.cpu.convolution import convolve_up_directly
from whatwhere.inference.engines.cpu.mask import apply_mask
from whatwhere.inference.engines.cpu.pooling import Layer, compute_weights, element_offset, pool, region_offset
from whatwhere.jit import Array, inline_jit, jit
from whatwhere.jit.simd import (
    LANES,
    absolute,
    fma,
    load,
    maximum,
    minimum,
    noinline,
    splat,
    store,
    where_positive,
)
from whatwhere.ops.pooling import SWITCH

KNOWN, MOMENTS, SWITCHES, FLAT = range(4)  # values of `layer.fit`: where the pooling variables of a layer come from


@jit
def copy_map(packed: Array, offset: int, state: Array, at: int, layer: Layer, between: int, load_state: bool) -> int:
    """Copy a map from the caller's [B, H, W] to the state's [H, W, `between`], or back; return the end of the map."""
    noinline()
    places = layer.rows * layer.columns
    for first in range(0, places, LANES):  # a few places at a time, so that their cache lines stay in cache
        for b in range(layer.real_maps):
            for i in range(first, min(first + LANES, places)):
                if load_state:
                    state[at + i * between + b] = packed[offset + b * places + i]
                else:
                    packed[offset + b * places + i] = state[at + i * between + b]
    end: int = offset + layer.real_maps * places
    return end


@jit
def copy_latents(packed: Array, state: Array, layers: Array, load_state: bool) -> None:
    """Copy p and every layer's μ and γ from the caller's order to the state's (`load_state`), or back."""
    noinline()
    top = layers[len(layers) - 1]
    offset = copy_map(packed, 0, state, top.features, top, top.maps, load_state)
    for k in range(1, len(layers)):
        layer = layers[k]
        for start in (layer.mu, layer.gamma):
            for axis in range(layer.axes):  # the caller's order is maps, rows, columns
                at = start + (axis if layer.axes == 2 else (axis + 2) % 3) * layer.maps
                offset = copy_map(packed, offset, state, at, layer, layer.axes * layer.maps, load_state)


@inline_jit
def start_pooling(
    state: Array, filters: Array, layers: Array, image: Array, mask: Array, bounds: tuple[float, float], power: int
) -> None:
    """`pooling_update.start_pooling`: propagate the image up to the last layer that is fitted; compute all weights.

    By direct convolution, since a fit depends on the signal's shape only: rounding noise would look like a signal.
    """
    last = 0
    for k in range(1, len(layers)):
        if layers[k].fit != KNOWN:
            last = k
    bottom = layers[0]
    length = bottom.columns * bottom.maps
    for y in range(bottom.rows if last > 0 else 0):
        at = element_offset(bottom, bottom.error, y, 0)
        for i in range(length):
            state[at + i] = image[y * length + i]
    if len(mask) > 0:
        apply_mask(state, bottom, bottom.error, mask)
        apply_mask(state, bottom, bottom.error, mask)  # M² ⊙ v
    for k in range(1, len(layers)):
        if k <= last:
            convolve_up_directly(state, filters, layers[k - 1], layers[k])
            fit(state, layers[k], bounds, power)
        if not layers[k].unpooled:
            compute_weights(state, layers[k])
        if k < last:
            pool(state, layers[k])


@jit
def fit(state: Array, layer: Layer, bounds: tuple[float, float], power: int) -> None:
    """`ops.pooling.fit_moments`, `fit_switches` or `fit_flat`, from the signal at z."""
    noinline()
    B, axes = layer.maps, layer.axes
    if layer.fit == KNOWN:
        return
    for row in range(layer.rows):
        for column in range(layer.columns):
            theta, z = (row * layer.columns + column) * axes * B, region_offset(layer, layer.z_error, row, column)
            for b in range(0, B, LANES):
                mu, gamma = layer.mu + theta + b, layer.gamma + theta + b
                if layer.fit == MOMENTS:
                    fit_moments(state, layer, z + b, mu, gamma, bounds, power)
                elif layer.fit == SWITCHES:
                    fit_switch(state, layer, z + b, mu, gamma)
                else:
                    for axis in range(axes):
                        store(state, mu + axis * B, splat(state, 0))
                        store(state, gamma + axis * B, splat(state, 0))


@jit
def fit_moments(
    state: Array, layer: Layer, z: int, mu: int, gamma: int, bounds: tuple[float, float], power: int
) -> None:
    """Mean and precision of |s|^power in each of LANES regions; centred and flat where there is no signal."""
    B, s, m = layer.maps, layer.pool, layer.depth
    zero, one, pitch = splat(state, 0), splat(state, 1), layer.z_columns * layer.z_maps
    largest = zero
    for h in range(m):
        for i in range(s):
            for j in range(s):
                largest = maximum(largest, absolute(load(state, z + h * B + i * pitch + j * layer.z_maps)))
    scale = one / where_positive(largest, largest, one)
    total, y, x, d, yy, xx, dd = zero, zero, zero, zero, zero, zero, zero
    for h in range(m):
        for i in range(s):
            for j in range(s):
                w = absolute(load(state, z + h * B + i * pitch + j * layer.z_maps)) * scale  # only the shape counts
                w = w * w if power == 2 else w
                total = total + w
                y, x, d = fma(w, splat(state, i), y), fma(w, splat(state, j), x), fma(w, splat(state, h), d)
    divisor = where_positive(total, total, one)
    y, x, d = y / divisor, x / divisor, d / divisor
    for h in range(m):
        for i in range(s):
            for j in range(s):
                w = absolute(load(state, z + h * B + i * pitch + j * layer.z_maps)) * scale
                w = w * w if power == 2 else w
                dy, dx, dh = splat(state, i) - y, splat(state, j) - x, splat(state, h) - d
                yy, xx, dd = fma(w, dy * dy, yy), fma(w, dx * dx, xx), fma(w, dh * dh, dd)
    store_moments(state, mu, gamma, s, total, y, yy, bounds)
    store_moments(state, mu + B, gamma + B, s, total, x, xx, bounds)
    if layer.axes == 3:
        store_moments(state, mu + 2 * B, gamma + 2 * B, m, total, d, dd, bounds)


@jit
def store_moments(
    state: Array, mu: int, gamma: int, s: int, total: Any, mean: Any, spread: Any, bounds: tuple[float, float]
) -> None:
    """μ and γ of one axis with s elements, from the sum of weights, their mean and Σ w (x - mean)²."""
    zero, least, most = splat(state, 0), splat(state, bounds[0]), splat(state, bounds[1])
    store(state, mu, where_positive(total, mean - splat(state, (s - 1) / 2), zero))
    store(state, gamma, minimum(maximum(where_positive(total, total / spread, zero), least), most))


@jit
def fit_switch(state: Array, layer: Layer, z: int, mu: int, gamma: int) -> None:
    """All weight on the largest |s| of each of LANES regions; on the first of equals."""
    B, s, m = layer.maps, layer.pool, layer.depth
    pitch, centre, middle = layer.z_columns * layer.z_maps, (s - 1) / 2, (m - 1) / 2
    largest, d = absolute(load(state, z)), splat(state, -middle)
    y, x = splat(state, -centre), splat(state, -centre)
    for h in range(m):
        for i in range(s):
            for j in range(s):
                size = absolute(load(state, z + h * B + i * pitch + j * layer.z_maps))
                y = where_positive(size - largest, splat(state, i - centre), y)
                x = where_positive(size - largest, splat(state, j - centre), x)
                d = where_positive(size - largest, splat(state, h - middle), d)
                largest = maximum(largest, size)
    store(state, mu, y)
    store(state, mu + B, x)
    if layer.axes == 3:
        store(state, mu + 2 * B, d)
    for axis in range(layer.axes):
        store(state, gamma + axis * B, splat(state, SWITCH))
