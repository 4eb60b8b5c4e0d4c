"""The two directions of `ops.convolution` for one image, by the fastest method for the sizes.

Winograd's method is used if the maps of the layer below fill vectors, and the direct sum from and
to the few channels of an image. The way down from few non-zero features visits only those features.
The few waveforms of a recording would leave most of each vector of maps empty, so for them, vectors
run along the signal.
"""

from whatwhere.engines.cpu.pooling import element_offset, weights_offset
from whatwhere.engines.cpu.products import Repeats, Windows, dots_rows, product_rows
from whatwhere.engines.cpu.records import Feature, Layer, Map
from whatwhere.engines.cpu.winograd import correlate
from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.simd import LANES, any_nonzero, load, noinline, store
from whatwhere.engines.jit.vector_math import fma


@inline_jit
def _signal_map(layer: Layer, start: int) -> Map:
    """Make a signal at p_k that begins at `start`, its border included."""
    rows, columns = layer.rows + 2 * layer.border_y, layer.columns + 2 * layer.border_x
    return Map(start, columns * layer.maps, layer.maps, rows, columns)


@inline_jit
def _unpooled_map(layer: Layer, start: int) -> Map:
    """Make a map at z_k that begins at `start`, without the elements beyond it that regions
    reach."""
    return Map(start, layer.z_columns * layer.maps, layer.maps, layer.height, layer.width)


@inline_jit
def convolve_up(state: Array, filters: Array, below: Layer, layer: Layer) -> None:
    """From the error at p_{k-1} to the error at z_k: a full correlation."""
    if layer.winograd:
        source, target = _signal_map(below, below.error), _unpooled_map(layer, layer.z_error)
        correlate(state, filters, layer, layer.up, source, target)
    elif layer.few:
        _convolve_up_to_few(state, filters, below, layer)
    else:
        convolve_up_directly(state, filters, below, layer)


@jit
def _convolve_up_to_few(state: Array, filters: Array, below: Layer, layer: Layer) -> None:
    """Do the same for few maps of a signal: each output is the product of a filter and a window,
    whose channels are contiguous."""
    noinline()
    signal, z = _signal_map(below, below.error), _unpooled_map(layer, layer.z_error)
    depth = whole_vectors(layer.size_x * below.maps)
    windows = Windows(signal.at, below.maps, signal.pitch, 1, depth)
    row = Repeats(1, 0, 0, 0, layer.width)
    for b in range(layer.real_maps):
        f = layer.few_up + b * depth
        dots_rows(state, filters, row, (z.at + b, layer.maps), windows, f)


@inline_jit
def whole_vectors(length: int) -> int:
    """Return the next multiple of LANES: filters are 0 beyond their end."""
    return (length + LANES - 1) // LANES * LANES


@jit
def convolve_up_directly(state: Array, filters: Array, below: Layer, layer: Layer) -> None:
    """Do the same as a sum over the filter's elements: slower, but exactly zero where the
    signal is."""
    noinline()
    K, L, C, B = layer.size_y, layer.size_x, below.maps, layer.maps
    signal, z = _signal_map(below, below.error), _unpooled_map(layer, layer.z_error)
    y = 0
    while y < layer.height:
        skipped = max(0, below.border_y - y)  # rows of the border of zeros
        rows = min(K, below.border_y + below.rows - y) - skipped
        equal = below.rows - K + 1 if rows == K else 1
        windows = Windows(signal.at + (y + skipped) * signal.pitch, C, signal.pitch, rows, L * C)
        matrix, outputs = (layer.direct + skipped * L * C * B, B), (z.at + y * z.pitch, B)
        product_rows(
            state,
            filters,
            Repeats(equal, z.pitch, signal.pitch, 0, layer.width),
            outputs,
            windows,
            matrix,
        )
        y += equal


@inline_jit
def convolve_down(
    state: Array, filters: Array, below: Layer, layer: Layer, z: int, target: int
) -> None:
    """From z_k to the signal at p_{k-1}: a valid convolution."""
    K, L, C, B = layer.size_y, layer.size_x, below.maps, layer.maps
    jump, pitch, first = (
        layer.z_columns * B,
        _signal_map(below, target).pitch,
        element_offset(below, target, 0, 0),
    )
    if layer.winograd:
        out = Map(first, pitch, C, below.rows, below.columns)
        correlate(state, filters, layer, layer.down, _unpooled_map(layer, z), out)
        return
    if layer.few:
        _convolve_down_from_few(state, filters, below, layer, z, first)
        return
    windows, repeats = (
        Windows(z, B, jump, K, L * B),
        Repeats(below.rows, pitch, jump, 0, below.columns),
    )
    if C % LANES == 0:
        product_rows(state, filters, repeats, (first, C), windows, (layer.down, C))
        return
    for c in range(C):
        dots_rows(state, filters, repeats, (first + c, C), windows, layer.down + c * K * L * B)


@jit
def _convolve_down_from_few(
    state: Array, filters: Array, below: Layer, layer: Layer, z: int, target: int
) -> None:
    """Do the same for few maps of a signal, which are first written next to each other."""
    noinline()
    maps = layer.real_maps
    for column in range(layer.width):
        for b in range(maps):
            state[layer.few_z + column * maps + b] = state[z + column * layer.maps + b]
    depth = whole_vectors(layer.size_x * maps)
    windows = Windows(layer.few_z, maps, 0, 1, depth)
    row = Repeats(1, 0, 0, 0, below.columns)
    for c in range(below.maps):
        f = layer.few_down + c * depth
        dots_rows(state, filters, row, (target + c, below.maps), windows, f)


@jit
def scatter_down(state: Array, filters: Array, below: Layer, layer: Layer, target: int) -> None:
    """Unpool and convolve the top layer's features, visiting only those that are not zero."""
    noinline()
    C, B, down, right = below.maps, layer.maps, layer.stride_y, layer.stride_x
    jump = _signal_map(below, target).pitch
    state[target : target + (below.rows + 2 * below.border_y) * jump] = 0
    for first in range(0, B, LANES):
        for row in range(layer.rows):
            height = layer.size_y - 1 + min(layer.pool_y, layer.height - row * down)
            for column in range(layer.columns):
                p_at = element_offset(layer, layer.features, row, column) + first
                if not any_nonzero(load(state, p_at)):
                    continue
                width = layer.size_x - 1 + min(layer.pool_x, layer.width - column * right)
                out = Map(target + row * down * jump + column * right * C, jump, C, height, width)
                w = weights_offset(layer, row, column) + first
                for b in range(LANES):
                    if state[p_at + b] != 0:
                        feature = Feature(state[p_at + b], w + b)
                        _scatter_one(state, filters, layer, feature, first + b, out)


@inline_jit
def element(state: Array, layer: Layer, feature: Feature, i: int, j: int) -> float:
    """z = w_y w_x p of element (i, j) of one region in one map."""
    if layer.unpooled:
        return feature.p
    w_y = state[feature.weights + i * layer.maps]
    w_x = state[feature.weights + (layer.pool_y + j) * layer.maps]
    return feature.p * w_y * w_x


@jit
def _scatter_one(
    state: Array, filters: Array, layer: Layer, feature: Feature, b: int, out: Map
) -> None:
    """Add one feature: filter b, weighted and shifted to every element of the region, on the places
    of `out`.

    The stored filter has a border of zeros, as wide as a region minus one, so that shifted reads
    stay inside it.
    """
    K, L, line, C = layer.size_y, layer.size_x, layer.line, out.maps
    margin_y, margin_x = layer.pool_y - 1, layer.pool_x - 1
    f = layer.scatter + (b * (K + 2 * margin_y) + margin_y) * line + margin_x * C
    if margin_y == 1 and margin_x == 1:
        z00, z01 = element(state, layer, feature, 0, 0), element(state, layer, feature, 0, 1)
        z10, z11 = element(state, layer, feature, 1, 0), element(state, layer, feature, 1, 1)
        for y in range(out.rows):
            for x in range(0, out.columns * C, LANES):
                at, tap = out.at + y * out.pitch + x, f + y * line + x
                top = fma(
                    z00, load(filters, tap), fma(z01, load(filters, tap - C), load(state, at))
                )
                tap -= line
                store(
                    state, at, fma(z10, load(filters, tap), fma(z11, load(filters, tap - C), top))
                )
        return
    for i in range(min(layer.pool_y, out.rows - K + 1)):
        for j in range(min(layer.pool_x, out.columns - L + 1)):
            z = element(state, layer, feature, i, j)
            for y in range(K if z != 0 else 0):
                for x in range(0, L * C, LANES):
                    at = out.at + (y + i) * out.pitch + j * C + x
                    store(state, at, fma(z, load(filters, f + y * line + x), load(state, at)))
