"""The start of one image: load its latents, fit the pooling variables that are not given, compute the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from whatwhere.inference.engines.cpu.convolution import convolve_up, convolve_up_directly
from whatwhere.inference.engines.cpu.mask import apply_mask
from whatwhere.inference.engines.cpu.pooling import Layer, compute_weights, element_offset, pool, region_offset
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import (
    LANES,
    absolute,
    fma,
    load,
    maximum,
    minimum,
    noinline,
    splat,
    store,
    total,
    transpose,
    where_positive,
)
from whatwhere.ops.pooling import SWITCH

ROUNDING = 20  # of Winograd's method, in units of the last place of the largest signal
KNOWN, MOMENTS, SWITCHES, FLAT = range(4)  # values of `layer.fit`: where the pooling variables of a layer come from


@jit
def copy_map(packed: Array, offset: int, state: Array, at: int, layer: Layer, between: int, load_state: bool) -> int:
    """Copy a map from the caller's [B, H, W] to the state's [H, W, `between`], or back; return the end of the map."""
    noinline()
    places = layer.rows * layer.columns
    for first in range(0, places, LANES):
        for map in range(0, layer.real_maps, LANES):
            inside, outside = at + first * between + map, offset + map * places + first
            if first + LANES <= places and map + LANES <= layer.real_maps:
                if load_state:
                    transpose(packed, outside, places, state, inside, between)
                else:
                    transpose(state, inside, between, packed, outside, places)
                continue
            for i in range(min(LANES, places - first)):
                for b in range(min(LANES, layer.real_maps - map)):
                    if load_state:
                        state[inside + i * between + b] = packed[outside + b * places + i]
                    else:
                        packed[outside + b * places + i] = state[inside + i * between + b]
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
    state: Array, filters: Array, layers: Array, image: Array, mask: Array, scales: Array, bounds: tuple[float, float],
    power: int, fast: bool,
) -> None:  # fmt: skip
    """`pooling_update.start_pooling`: propagate the image up to the last layer that is fitted; compute all weights.

    By direct convolution, since a fit depends on the signal's shape only: rounding noise would look like a signal.
    `fast`, by the fastest convolution; then what is within its rounding counts as no signal.
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
            state[at + i] = -image[y * length + i]  # the residual of p = 0; a fit asks for |s| only
    if len(mask) > 0:
        apply_mask(state, bottom, bottom.error, mask)
        apply_mask(state, bottom, bottom.error, mask)  # - M² ⊙ v
    for k in range(1, len(layers)):
        if k <= last:
            floor = 0.0
            if fast and layers[k].winograd and layers[k].fit == MOMENTS:
                convolve_up(state, filters, layers[k - 1], layers[k])
                floor = ROUNDING * largest_signal(state, layers[k]) * np.finfo(state.dtype).eps
            else:
                convolve_up_directly(state, filters, layers[k - 1], layers[k])
            fit(state, layers[k], scales[k - 1], bounds, power, floor)
        if not layers[k].unpooled:
            compute_weights(state, layers[k])
        if k < last:
            pool(state, layers[k])


@inline_jit
def first_gradient(state: Array, layers: Array, image: Array, mask: Array) -> float:
    """What `reconstruct` and `propagate` do at p = 0, after `start_pooling` has fitted all layers; ‖M ⊙ v‖².

    The fit has left the residual of p = 0 at every z_k; what is missing is g, and p̂_k = 0.
    """
    squares = 0.0
    for i in range(len(image)):
        weighted = image[i] * mask[i] if len(mask) > 0 else image[i]
        squares += weighted * weighted
    for k in range(len(layers) - 1):
        layer = layers[k]
        framed = (layer.rows + 2 * layer.border) * (layer.columns + 2 * layer.border) * layer.maps
        state[layer.features : layer.features + framed] = 0
    top = layers[len(layers) - 1]
    if not top.unpooled:
        pool(state, top)
    return squares


@jit
def largest_signal(state: Array, layer: Layer) -> float:
    """The sum over lanes of the largest |s| at z in each: no less than the largest of all."""
    noinline()
    largest = splat(state, 0)
    for i in range(layer.z_error, layer.z_error + layer.z_rows * layer.z_columns * layer.z_maps, LANES):
        largest = maximum(largest, absolute(load(state, i)))
    size: float = total(largest)
    return size


@jit
def fit(state: Array, layer: Layer, scales: Array, bounds: tuple[float, float], power: int, floor: float) -> None:
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
                if layer.fit == MOMENTS and layer.pool == 2 and layer.depth == 1:
                    fit_pair_moments(state, layer, z + b, mu, gamma, scales, bounds, power, floor)
                elif layer.fit == MOMENTS:
                    fit_moments(state, layer, z + b, mu, gamma, scales, bounds, power, floor)
                elif layer.fit == SWITCHES:
                    fit_switch(state, layer, z + b, mu, gamma)
                else:
                    for axis in range(axes):
                        store(state, mu + axis * B, splat(state, 0))
                        store(state, gamma + axis * B, splat(state, 0))


@jit
def fit_moments(
    state: Array, layer: Layer, z: int, mu: int, gamma: int, scales: Array, bounds: tuple[float, float], power: int,
    floor: float,
) -> None:  # fmt: skip
    """Mean and precision of |s|^power in each of LANES regions, times `scales`; centred and flat without a signal
    above the floor."""
    B, s, m = layer.maps, layer.pool, layer.depth
    zero, one, pitch = splat(state, 0), splat(state, 1), layer.z_columns * layer.z_maps
    largest = zero
    for h in range(m):
        for i in range(s):
            for j in range(s):
                largest = maximum(largest, absolute(load(state, z + h * B + i * pitch + j * layer.z_maps)))
    largest = where_positive(largest - splat(state, floor), largest, zero)
    scale = where_positive(largest, one / where_positive(largest, largest, one), zero)
    mass, y, x, d, yy, xx, dd = zero, zero, zero, zero, zero, zero, zero
    for h in range(m):
        for i in range(s):
            for j in range(s):
                w = absolute(load(state, z + h * B + i * pitch + j * layer.z_maps)) * scale  # only the shape counts
                w = w * w if power == 2 else w
                mass = mass + w
                y, x, d = fma(w, splat(state, i), y), fma(w, splat(state, j), x), fma(w, splat(state, h), d)
    divisor = where_positive(mass, mass, one)
    y, x, d = y / divisor, x / divisor, d / divisor
    for h in range(m):
        for i in range(s):
            for j in range(s):
                w = absolute(load(state, z + h * B + i * pitch + j * layer.z_maps)) * scale
                w = w * w if power == 2 else w
                dy, dx, dh = splat(state, i) - y, splat(state, j) - x, splat(state, h) - d
                yy, xx, dd = fma(w, dy * dy, yy), fma(w, dx * dx, xx), fma(w, dh * dh, dd)
    store_moments(state, mu, gamma, s, mass, y, yy, scales, bounds)
    store_moments(state, mu + B, gamma + B, s, mass, x, xx, scales, bounds)
    if layer.axes == 3:
        store_moments(state, mu + 2 * B, gamma + 2 * B, m, mass, d, dd, scales, bounds)


@inline_jit
def fit_pair_moments(
    state: Array, layer: Layer, z: int, mu: int, gamma: int, scales: Array, bounds: tuple[float, float], power: int,
    floor: float,
) -> None:  # fmt: skip
    """The same for regions of 2×2: with shares q₀ and q₁ of the two elements of an axis, mean q₁ and variance q₀ q₁."""
    B, step, pitch = layer.maps, layer.z_maps, layer.z_columns * layer.z_maps
    zero, one = splat(state, 0), splat(state, 1)
    w00, w01 = absolute(load(state, z)), absolute(load(state, z + step))
    w10, w11 = absolute(load(state, z + pitch)), absolute(load(state, z + pitch + step))
    largest = maximum(maximum(w00, w01), maximum(w10, w11))
    largest = where_positive(largest - splat(state, floor), largest, zero)
    scale = where_positive(largest, one / where_positive(largest, largest, one), zero)
    w00, w01, w10, w11 = w00 * scale, w01 * scale, w10 * scale, w11 * scale
    if power == 2:
        w00, w01, w10, w11 = w00 * w00, w01 * w01, w10 * w10, w11 * w11
    top, bottom, left, right = w00 + w01, w10 + w11, w00 + w10, w01 + w11
    mass = top + bottom
    share = one / where_positive(mass, mass, one)
    store_moments(state, mu, gamma, 2, mass, bottom * share, top * bottom * share, scales, bounds)
    store_moments(state, mu + B, gamma + B, 2, mass, right * share, left * right * share, scales, bounds)


@inline_jit
def store_moments(
    state: Array, mu: int, gamma: int, s: int, mass: Any, mean: Any, spread: Any, scales: Array,
    bounds: tuple[float, float],
) -> None:  # fmt: skip
    """μ and γ of one axis with s elements, from the sum of weights, their mean and Σ w (x - mean)², times `scales`."""
    zero, centre = splat(state, 0), splat(state, (s - 1) / 2)
    least, most = splat(state, bounds[0]), splat(state, bounds[1])
    offset = where_positive(mass, mean - centre, zero) * scales[0]
    store(state, mu, minimum(maximum(offset, zero - centre), centre))
    precision = minimum(maximum(where_positive(mass, mass / spread, zero), least), most) * scales[1]
    store(state, gamma, minimum(maximum(precision, least), most))


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
