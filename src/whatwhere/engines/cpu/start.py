"""The start of one image: load its latents, fit the pooling variables that are not given, compute
the weights."""

from typing import Any

import numpy as np

from whatwhere.engines.cpu.convolution import convolve_up, convolve_up_directly
from whatwhere.engines.cpu.pooling import (
    axes_of,
    compute_weights,
    element_offset,
    pool,
    region_offset,
)
from whatwhere.engines.cpu.records import Layer, Network, Settings, Target
from whatwhere.engines.cpu.steps import apply_mask
from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.region import coordinate, fit_moments
from whatwhere.engines.jit.simd import LANES, load, noinline, splat, store, total
from whatwhere.engines.jit.vector_math import absolute, formulas, maximum, where
from whatwhere.formulas.fits import SWITCH
from whatwhere.spec import Gaussian, Max, Sum

ROUNDING = 20  # of Winograd's method, in units of the last place of the largest signal
# values of `layer.fit`: where the pooling variables of a layer come from
KNOWN, MOMENTS, SWITCHES, FLAT = range(4)
FITS = {Gaussian: MOMENTS, Max: SWITCHES, Sum: FLAT}  # by the kind of pooling


@inline_jit
def copy(source: Array, begin: int, target: Array, at: int, length: int) -> None:
    """Copy a slice. As a slice assignment Numba would spend seconds compiling an error message
    that cannot occur."""
    whole = length - length % LANES
    for i in range(0, whole, LANES):
        store(target, at + i, load(source, begin + i))
    for i in range(whole, length):
        target[at + i] = source[begin + i]


@jit
def copy_map(
    packed: Array,
    outside: int,
    state: Array,
    inside: int,
    shape: tuple[int, int, int],
    to_state: bool,
) -> int:
    """Copy `shape` = (places, maps of the model, maps in memory) to the state or back; the end of
    the caller's."""
    noinline()
    places, maps, between = shape
    if maps == between:
        places, maps, between = 1, places * maps, places * maps
    for i in range(places):
        here, there = outside + i * maps, inside + i * between
        if to_state:
            copy(packed, here, state, there, maps)
        else:
            copy(state, there, packed, here, maps)
    return outside + places * maps


@jit
def copy_latents(packed: Array, state: Array, layers: Array, to_state: bool) -> None:
    """Copy p [H, W, B] and every layer's μ and γ [H, W, axis, B] to the state, or back."""
    noinline()
    top = layers[len(layers) - 1]
    shape = top.rows * top.columns, top.real_maps, top.maps
    end = copy_map(packed, 0, state, top.features, shape, to_state)
    for k in range(1, len(layers)):
        layer = layers[k]
        shape = 2 * layer.rows * layer.columns, layer.real_maps, layer.maps
        end = copy_map(packed, end, state, layer.mu, shape, to_state)
        end = copy_map(packed, end, state, layer.gamma, shape, to_state)


@inline_jit
def start_pooling(
    state: Array, network: Network, target: Target, settings: Settings, scales: Array
) -> None:
    """`pooling_update.start_pooling`: propagate the image up to the last layer that is fitted;
    compute all weights.

    By direct convolution, since a fit depends on the signal's shape only: rounding noise would look
    like a signal. With `settings.fast_fit` by the fastest convolution; then what is within its
    rounding counts as no signal.
    """
    layers, filters = network
    image, mask = target
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
            if settings.fast_fit and layers[k].winograd and layers[k].fit == MOMENTS:
                convolve_up(state, filters, layers[k - 1], layers[k])
                floor = ROUNDING * largest_signal(state, layers[k]) * np.finfo(state.dtype).eps
            else:
                convolve_up_directly(state, filters, layers[k - 1], layers[k])
            fit(state, layers[k], scales[k - 1], settings, floor)
        if not layers[k].unpooled:
            compute_weights(state, layers[k])
        if k < last:
            pool(state, layers[k])


@inline_jit
def first_gradient(state: Array, layers: Array, target: Target) -> float:
    """What `reconstruct` and `propagate` do at p = 0, after `start_pooling` has fitted all layers;
    ‖M ⊙ v‖².

    The fit has left the residual of p = 0 at every z_k; what is missing is g, and p̂_k = 0.
    """
    image, mask = target
    squares = 0.0
    for i in range(len(image)):
        weighted = image[i] * mask[i] if len(mask) > 0 else image[i]
        squares += weighted * weighted
    for k in range(len(layers) - 1):
        layer = layers[k]
        framed = (
            (layer.rows + 2 * layer.border_y) * (layer.columns + 2 * layer.border_x) * layer.maps
        )
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
    for i in range(
        layer.z_error, layer.z_error + layer.z_rows * layer.z_columns * layer.maps, LANES
    ):
        largest = maximum(largest, absolute(load(state, i)))
    return total(largest)


@jit
def fit(state: Array, layer: Layer, scales: Array, settings: Settings, floor: float) -> None:
    """`ops.pooling.fit_moments`, times `scales`, `fit_switches` or `fit_flat`, from the signal at
    z."""
    noinline()
    B, power, bounds = layer.maps, settings.moment_power, (settings.gamma_min, settings.gamma_max)
    if layer.fit == KNOWN:
        return
    for row in range(layer.rows):
        for column in range(layer.columns):
            theta, z = (
                (row * layer.columns + column) * 2 * B,
                region_offset(layer, layer.z_error, row, column),
            )
            for b in range(0, B, LANES):
                mu, gamma, own = layer.mu + theta + b, layer.gamma + theta + b, axes_of(layer)
                if layer.fit == MOMENTS:
                    _, mass, rows, columns = fit_moments(state, z + b, own, power, floor)
                    store_moments(state, (mu, gamma), (own[0].size, mass, rows), scales, bounds)
                    store_moments(
                        state, (mu + B, gamma + B), (own[1].size, mass, columns), scales, bounds
                    )
                elif layer.fit == SWITCHES:
                    fit_switch(state, layer, z + b, mu, gamma)
                else:
                    for axis in range(2):
                        store(state, mu + axis * B, splat(state, 0))
                        store(state, gamma + axis * B, splat(state, 0))


@inline_jit
def store_moments(
    state: Array, at: tuple[int, int], fitted: Any, scales: Array, bounds: tuple[float, float]
) -> None:
    """μ and γ of one axis, times `scales`; `fitted` = (elements, Σ strength, (mean, variance))."""
    size, mass, (mean, variance) = fitted
    limits, gamma = (
        ((size - 1) / 2, bounds[0], bounds[1]),
        formulas.precision(variance, mass, bounds[0], bounds[1]),
    )
    mu, gamma = formulas.bound(mean * scales[0], gamma * scales[1], limits)
    store(state, at[0], mu)
    store(state, at[1], gamma)


@jit
def fit_switch(state: Array, layer: Layer, z: int, mu: int, gamma: int) -> None:
    """All weight on the largest |s| of each of LANES regions; on the first of equals."""
    B, (rows, columns) = layer.maps, axes_of(layer)
    largest = absolute(load(state, z))
    y, x = splat(state, coordinate(0, rows.size)), splat(state, coordinate(0, columns.size))
    for i in range(rows.size):
        for j in range(columns.size):
            size = absolute(load(state, z + i * rows.stride + j * columns.stride))
            y = where(size - largest > 0, splat(state, coordinate(i, rows.size)), y)
            x = where(size - largest > 0, splat(state, coordinate(j, columns.size)), x)
            largest = maximum(largest, size)
    store(state, mu, y)
    store(state, mu + B, x)
    store(state, gamma, splat(state, SWITCH))
    store(state, gamma + B, splat(state, SWITCH))
