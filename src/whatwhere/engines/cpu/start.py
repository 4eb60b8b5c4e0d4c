"""The start of one image: load its latents, fit the pooling variables that are not given, compute
the weights."""

from typing import NamedTuple

import numpy as np

from whatwhere.engines.cpu.convolution import convolve_up, convolve_up_directly
from whatwhere.engines.cpu.pooling import (
    Bounds,
    axes_of,
    compute_weights,
    element_offset,
    pool,
    region_offset,
)
from whatwhere.engines.cpu.records import Layer, Network, Settings, Target
from whatwhere.engines.cpu.steps import apply_mask
from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.region import AxisMoments, coordinate, fit_moments
from whatwhere.engines.jit.simd import LANES, Lanes, load, noinline, splat, store, total
from whatwhere.engines.jit.vector_math import absolute, formulas, maximum, where
from whatwhere.formulas.fits import SWITCH
from whatwhere.spec import Gaussian, Max, Sum

ROUNDING = 20  # of Winograd's method, in units of the last place of the largest signal
# values of `layer.fit`: where the pooling variables of a layer come from
KNOWN = 0
MOMENTS = 1
SWITCHES = 2
FLAT = 3
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


class MapShape(NamedTuple):
    """A map that the caller has as [places, real_maps] and the state as [places, maps]."""

    places: int
    real_maps: int
    maps: int


@jit
def _copy_map(
    packed: Array, outside: int, state: Array, inside: int, shape: MapShape, to_state: bool
) -> int:
    """Copy a map to the state or back; where the caller's next map begins."""
    noinline()
    if shape.real_maps == shape.maps:  # all places at once
        numbers = shape.places * shape.maps
        shape = MapShape(1, numbers, numbers)
    for i in range(shape.places):
        here = outside + i * shape.real_maps
        there = inside + i * shape.maps
        if to_state:
            copy(packed, here, state, there, shape.real_maps)
        else:
            copy(state, there, packed, here, shape.real_maps)
    return outside + shape.places * shape.real_maps


@jit
def copy_latents(packed: Array, state: Array, layers: Array, to_state: bool) -> None:
    """Copy p [H, W, B] and every layer's μ and γ [H, W, axis, B] to the state, or back. Where only
    p is given, μ and γ become 0."""
    noinline()
    top = layers[len(layers) - 1]
    shape = MapShape(top.rows * top.columns, top.real_maps, top.maps)
    end = _copy_map(packed, 0, state, top.features, shape, to_state)
    complete = end < len(packed)
    for k in range(1, len(layers)):
        layer = layers[k]
        if not complete:
            length = 2 * layer.rows * layer.columns * layer.maps
            state[layer.mu : layer.mu + length] = 0
            state[layer.gamma : layer.gamma + length] = 0
            continue
        shape = MapShape(2 * layer.rows * layer.columns, layer.real_maps, layer.maps)
        end = _copy_map(packed, end, state, layer.mu, shape, to_state)
        end = _copy_map(packed, end, state, layer.gamma, shape, to_state)


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
    layers = network.layers
    last = _last_fitted(layers)
    _load_first_error(state, layers[0], target, last > 0)
    for k in range(1, len(layers)):
        if k <= last:
            floor = _signal_at_z(state, network, settings, k)
            fit(state, layers[k], scales[k - 1], settings, floor)
        if not layers[k].unpooled:
            compute_weights(state, layers[k])
        if k < last:
            pool(state, layers[k])


@inline_jit
def _last_fitted(layers: Array) -> int:
    """Return the highest layer whose pooling variables are not known; 0 if all are."""
    last = 0
    for k in range(1, len(layers)):
        if layers[k].fit != KNOWN:
            last = k
    return last


@inline_jit
def _load_first_error(state: Array, bottom: Layer, target: Target, needed: bool) -> None:
    """Load the residual of p = 0, - M² ⊙ v, where it is needed; a fit asks for its size only."""
    image, mask = target
    length = bottom.columns * bottom.maps
    for y in range(bottom.rows if needed else 0):
        at = element_offset(bottom, bottom.error, y, 0)
        for i in range(length):
            state[at + i] = -image[y * length + i]
    if len(mask) > 0:
        apply_mask(state, bottom, bottom.error, mask)
        apply_mask(state, bottom, bottom.error, mask)


@inline_jit
def _signal_at_z(state: Array, network: Network, settings: Settings, k: int) -> float:
    """Propagate the signal below layer k to its z; what is up to this is rounding."""
    layers, filters = network
    if _fits_fast(layers[k], settings):
        convolve_up(state, filters, layers[k - 1], layers[k])
    else:
        convolve_up_directly(state, filters, layers[k - 1], layers[k])
    return rounding_of(state, layers[k], settings)


@inline_jit
def _fits_fast(layer: Layer, settings: Settings) -> bool:
    """Tell whether a layer is fitted to a signal that Winograd's method has rounded."""
    return settings.fast_fit and layer.winograd and layer.fit == MOMENTS


@inline_jit
def rounding_of(state: Array, layer: Layer, settings: Settings) -> float:
    """Return the size of the signal at z up to which it is rounding."""
    if _fits_fast(layer, settings):
        return ROUNDING * _largest_signal(state, layer) * np.finfo(state.dtype).eps
    return 0.0


@inline_jit
def first_gradient(state: Array, layers: Array, target: Target) -> float:
    """Return what `reconstruct` and `propagate` do at p = 0, after `start_pooling` has fitted all
    layers; ‖M ⊙ v‖².

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
def _largest_signal(state: Array, layer: Layer) -> float:
    """Return the sum over lanes of the largest |s| at z in each: no less than the largest of
    all."""
    noinline()
    largest = splat(state, 0)
    for i in range(
        layer.z_error, layer.z_error + layer.z_rows * layer.z_columns * layer.maps, LANES
    ):
        largest = maximum(largest, absolute(load(state, i)))
    return total(largest)


@jit
def fit(state: Array, layer: Layer, scales: Array, settings: Settings, floor: float) -> None:
    """`ops.pooling.fit_moments`, times `scales`, `fit_switches` or `_fit_flat`, from the signal at
    z."""
    noinline()
    if layer.fit == KNOWN:
        return
    B = layer.maps
    for row in range(layer.rows):
        for column in range(layer.columns):
            theta = (row * layer.columns + column) * 2 * B
            z = region_offset(layer, layer.z_error, row, column)
            for b in range(0, B, LANES):
                rows = ThetaAt(layer.mu + theta + b, layer.gamma + theta + b)
                columns = ThetaAt(rows.mu + B, rows.gamma + B)
                if layer.fit == MOMENTS:
                    _fit_gaussian(state, layer, z + b, (rows, columns), scales, settings, floor)
                elif layer.fit == SWITCHES:
                    _fit_switch(state, layer, z + b, rows, columns)
                else:
                    _fit_flat(state, rows)
                    _fit_flat(state, columns)


class ThetaAt(NamedTuple):
    """Where μ and γ of LANES regions along one axis are in the state."""

    mu: int
    gamma: int


@inline_jit
def _fit_gaussian(
    state: Array,
    layer: Layer,
    z: int,
    at: tuple[ThetaAt, ThetaAt],
    scales: Array,
    settings: Settings,
    floor: float,
) -> None:
    """Fit the Gaussians of LANES regions with the moments of their signal."""
    rows, columns = axes_of(layer)
    moments = fit_moments(state, z, (rows, columns), settings.moment_power, floor)
    bounds = Bounds(settings.gamma_min, settings.gamma_max)
    _store_moments(state, at[0], rows.size, moments.total, moments.rows, scales, bounds)
    _store_moments(state, at[1], columns.size, moments.total, moments.columns, scales, bounds)


@inline_jit
def _store_moments(
    state: Array,
    at: ThetaAt,
    size: int,
    total: Lanes,
    moments: AxisMoments,
    scales: Array,
    bounds: Bounds,
) -> None:
    """μ and γ of one axis of `size` elements, times `scales`."""
    gamma = formulas.precision(moments.variance, total, bounds.gamma_min, bounds.gamma_max)
    limits = ((size - 1) / 2, bounds.gamma_min, bounds.gamma_max)
    mu, gamma = formulas.bound(moments.mean * scales[0], gamma * scales[1], limits)
    store(state, at.mu, mu)
    store(state, at.gamma, gamma)


@jit
def _fit_switch(state: Array, layer: Layer, z: int, at_y: ThetaAt, at_x: ThetaAt) -> None:
    """Put all weight on the largest |s| of each of LANES regions; on the first of equals."""
    rows, columns = axes_of(layer)
    largest = absolute(load(state, z))
    y = splat(state, coordinate(0, rows.size))
    x = splat(state, coordinate(0, columns.size))
    for i in range(rows.size):
        for j in range(columns.size):
            size = absolute(load(state, z + i * rows.stride + j * columns.stride))
            y = where(size - largest > 0, splat(state, coordinate(i, rows.size)), y)
            x = where(size - largest > 0, splat(state, coordinate(j, columns.size)), x)
            largest = maximum(largest, size)
    store(state, at_y.mu, y)
    store(state, at_x.mu, x)
    store(state, at_y.gamma, splat(state, SWITCH))
    store(state, at_x.gamma, splat(state, SWITCH))


@inline_jit
def _fit_flat(state: Array, at: ThetaAt) -> None:
    """Make all weights equal along one axis."""
    store(state, at.mu, splat(state, 0))
    store(state, at.gamma, splat(state, 0))
