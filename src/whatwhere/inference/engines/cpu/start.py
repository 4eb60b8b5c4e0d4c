"""The start of one image: its latents copied in, the pooling variables that are not known fitted, the weights made."""

from __future__ import annotations

from whatwhere.inference.engines.cpu.compiling import Array, compiled, spliced
from whatwhere.inference.engines.cpu.convolution import convolve_up_directly
from whatwhere.inference.engines.cpu.pooling import Layer, place, pool, weigh
from whatwhere.inference.engines.cpu.simd import (
    LANES,
    apart,
    fma,
    larger,
    load,
    magnitude,
    smaller,
    splat,
    store,
    where_positive,
)
from whatwhere.ops.pooling import SWITCH

KNOWN, MOMENTS, SWITCHES, FLAT = range(4)  # what `layer.fit` says about a layer's pooling variables


@compiled
def exchange(packed: Array, offset: int, state: Array, at: int, layer: Layer, between: int, inwards: bool) -> int:
    """Copy a map [B, H, W] of the caller's from or to [H, W, `between`] of the state; where the next map begins."""
    apart()
    places = layer.rows * layer.columns
    for first in range(0, places, LANES):  # a few places at a time, so that their cache lines are still at hand
        for b in range(layer.real_maps):
            for i in range(first, min(first + LANES, places)):
                if inwards:
                    state[at + i * between + b] = packed[offset + b * places + i]
                else:
                    packed[offset + b * places + i] = state[at + i * between + b]
    return offset + layer.real_maps * places


@compiled
def exchange_latents(packed: Array, state: Array, layers: Array, inwards: bool) -> None:
    """Copy p and every layer's μ and γ between the caller's order and the state's."""
    apart()
    top = layers[len(layers) - 1]
    offset = exchange(packed, 0, state, top.features, top, top.maps, inwards)
    for k in range(1, len(layers)):
        layer = layers[k]
        for start in (layer.mu, layer.gamma):
            for axis in range(2):
                at = start + axis * layer.maps
                offset = exchange(packed, offset, state, at, layer, 2 * layer.maps, inwards)


@spliced
def start_pooling(
    state: Array, filters: Array, layers: Array, image: Array, bounds: tuple[float, float], power: int
) -> None:
    """`pooling_update.start_pooling`: the image propagated up as far as there is something to fit; all weights.

    Directly, since a fit looks at the signal's shape alone: rounding noise would pass for a signal where there is none.
    """
    last = 0
    for k in range(1, len(layers)):
        if layers[k].fit != KNOWN:
            last = k
    bottom = layers[0]
    length = bottom.columns * bottom.maps
    for y in range(bottom.rows if last > 0 else 0):
        at = place(bottom, bottom.error, y, 0)
        for i in range(length):
            state[at + i] = image[y * length + i]
    for k in range(1, len(layers)):
        if k <= last:
            convolve_up_directly(state, filters, layers[k - 1], layers[k])
            fit(state, layers[k], bounds, power)
        if not layers[k].unpooled:
            weigh(state, layers[k])
        if k < last:
            pool(state, layers[k])


@compiled
def fit(state: Array, layer: Layer, bounds: tuple[float, float], power: int) -> None:
    """`ops.pooling.fit_moments`, `fit_switches` or `fit_flat`, from the signal at z."""
    apart()
    B, s = layer.maps, layer.pool
    if layer.fit == KNOWN:
        return
    for row in range(layer.rows):
        for column in range(layer.columns):
            theta = (row * layer.columns + column) * 2 * B
            z = layer.z_error + (row * s * layer.columns + column) * s * B
            for b in range(0, B, LANES):
                mu, gamma = layer.mu + theta + b, layer.gamma + theta + b
                if layer.fit == MOMENTS:
                    fit_moments(state, layer, z + b, mu, gamma, bounds, power)
                elif layer.fit == SWITCHES:
                    fit_switch(state, layer, z + b, mu, gamma)
                else:
                    for axis in range(2):
                        store(state, mu + axis * B, splat(state, 0))
                        store(state, gamma + axis * B, splat(state, 0))


@compiled
def fit_moments(
    state: Array, layer: Layer, z: int, mu: int, gamma: int, bounds: tuple[float, float], power: int
) -> None:
    """Mean and precision of |s|^power in each of LANES regions; centred and flat where there is no signal."""
    B, s = layer.maps, layer.pool
    zero, one, pitch = splat(state, 0), splat(state, 1), layer.columns * s * B
    largest = zero
    for i in range(s):
        for j in range(s):
            largest = larger(largest, magnitude(load(state, z + i * pitch + j * B)))
    scale = one / where_positive(largest, largest, one)
    total, y, x, yy, xx = zero, zero, zero, zero, zero
    for i in range(s):
        for j in range(s):
            w = magnitude(load(state, z + i * pitch + j * B)) * scale  # only the shape counts
            w = w * w if power == 2 else w
            total = total + w
            y, x = fma(w, splat(state, i), y), fma(w, splat(state, j), x)
    whole = where_positive(total, total, one)
    y, x = y / whole, x / whole
    for i in range(s):
        for j in range(s):
            w = magnitude(load(state, z + i * pitch + j * B)) * scale
            w = w * w if power == 2 else w
            dy, dx = splat(state, i) - y, splat(state, j) - x
            yy, xx = fma(w, dy * dy, yy), fma(w, dx * dx, xx)
    centre, least, most = splat(state, (s - 1) / 2), splat(state, bounds[0]), splat(state, bounds[1])
    store(state, mu, where_positive(total, y - centre, zero))
    store(state, mu + B, where_positive(total, x - centre, zero))
    store(state, gamma, smaller(larger(where_positive(total, total / yy, zero), least), most))
    store(state, gamma + B, smaller(larger(where_positive(total, total / xx, zero), least), most))


@compiled
def fit_switch(state: Array, layer: Layer, z: int, mu: int, gamma: int) -> None:
    """All weight on the largest |s| of each of LANES regions, the first of them where several are."""
    B, s = layer.maps, layer.pool
    pitch, centre = layer.columns * s * B, (s - 1) / 2
    largest, y, x = magnitude(load(state, z)), splat(state, -centre), splat(state, -centre)
    for i in range(s):
        for j in range(s):
            size = magnitude(load(state, z + i * pitch + j * B))
            y = where_positive(size - largest, splat(state, i - centre), y)
            x = where_positive(size - largest, splat(state, j - centre), x)
            largest = larger(largest, size)
    store(state, mu, y)
    store(state, mu + B, x)
    store(state, gamma, splat(state, SWITCH))
    store(state, gamma + B, splat(state, SWITCH))
