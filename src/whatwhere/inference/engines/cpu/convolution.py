"""The two directions of `ops.convolution` for one image, by the fastest method for the sizes.

If the maps of the layer below fill vectors, Winograd's method; from and to the few channels of an image, the direct
sum; down from few non-zero features, those features only.
"""

from __future__ import annotations

from whatwhere.inference.engines.cpu.pooling import Layer, element_offset, weights_offset
from whatwhere.inference.engines.cpu.rows import dots_rows, product_rows
from whatwhere.inference.engines.cpu.winograd import correlate
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import LANES, any_nonzero, fma, load, noinline, splat, store


@inline_jit
def convolve_up(state: Array, filters: Array, below: Layer, layer: Layer) -> None:
    """From the error at p_{k-1} to the error at z_k: a full correlation."""
    if layer.winograd:
        correlate(
            state, below.error, (below.columns + 2 * below.border) * below.maps, below.maps,
            layer.z_error, layer.z_columns * layer.z_maps, layer.z_maps, layer.height, layer.width, layer.size,
            filters, layer.up, layer.work, layer.patches, layer.products,
        )  # fmt: skip
    else:
        convolve_up_directly(state, filters, below, layer)


@jit
def convolve_up_directly(state: Array, filters: Array, below: Layer, layer: Layer) -> None:
    """The same as a sum over the filter's elements: slower, but exactly zero where the signal is."""
    noinline()
    K, C, B = layer.size, below.maps, layer.z_maps
    jump, pitch = (below.columns + 2 * below.border) * C, layer.z_columns * B
    y = 0
    while y < layer.height:
        skipped = max(0, below.border - y)  # rows of the border of zeros
        rows = min(K, below.border + below.rows - y) - skipped
        equal = below.rows - K + 1 if rows == K else 1
        signal, f = below.error + (y + skipped) * jump, layer.direct + skipped * K * C * B
        product_rows(
            equal, state, layer.z_error + y * pitch, pitch, B, layer.width,
            state, signal, jump, C, jump, rows, K * C, filters, f, 0, B,
        )  # fmt: skip
        y += equal


@inline_jit
def convolve_down(state: Array, filters: Array, below: Layer, layer: Layer, z: int, target: int) -> None:
    """From z_k to the signal at p_{k-1}: a valid convolution."""
    K, C, B = layer.size, below.maps, layer.z_maps
    jump, pitch = layer.z_columns * B, (below.columns + 2 * below.border) * C
    first = element_offset(below, target, 0, 0)
    if layer.winograd:
        correlate(
            state, z, jump, B, first, pitch, C, below.rows, below.columns, K,
            filters, layer.down, layer.work, layer.patches, layer.products,
        )  # fmt: skip
        return
    rows, columns, depth = below.rows, below.columns, K * B
    if C % LANES == 0:
        product_rows(
            rows, state, first, pitch, C, columns, state, z, jump, B, jump, K, depth, filters, layer.down, 0, C
        )  # fmt: skip
        return
    for c in range(C):
        f = layer.down + c * K * depth
        dots_rows(rows, state, first + c, pitch, C, columns, state, z, B, jump, K, depth, filters, f)


@jit
def scatter_down(state: Array, filters: Array, below: Layer, layer: Layer, target: int) -> None:
    """Unpool and convolve the top layer's features, visiting only those that are not zero."""
    noinline()
    C, B, s, stride = below.maps, layer.maps, layer.pool, layer.stride
    jump = (below.columns + 2 * below.border) * C
    state[target : target + (below.rows + 2 * below.border) * jump] = 0
    for first in range(0, B, LANES):
        for row in range(layer.rows):
            height = layer.size - 1 + min(s, layer.height - row * stride)
            for column in range(layer.columns):
                p_at = element_offset(layer, layer.features, row, column) + first
                if not any_nonzero(load(state, p_at)):
                    continue
                width = layer.size - 1 + min(s, layer.width - column * stride)
                out = target + row * stride * jump + column * stride * C
                w = weights_offset(layer, row, column) + first
                for b in range(LANES):
                    if state[p_at + b] == 0:
                        continue
                    p = state[p_at + b]
                    if layer.depth == 1:
                        scatter_one(state, filters, layer, p, w + b, first + b, out, jump, height, width, C)
                        continue
                    for i in range(layer.depth):
                        part, plane = p * state[w + b + (2 * s + i) * B], i * B + first + b
                        scatter_one(state, filters, layer, part, w + b, plane, out, jump, height, width, C)


@jit
def scatter_one(
    state: Array, filters: Array, layer: Layer, p: float, w: int, b: int, out: int, jump: int,
    height: int, width: int, C: int,
) -> None:  # fmt: skip
    """Add one feature: filter b, weighted and shifted to every element of the region, on `height` × `width` places.

    The stored filter has a border of s - 1 zeros, so that shifted reads stay inside it.
    """
    B, s = layer.maps, layer.pool
    line = layer.line
    f = layer.scatter + b * line * (layer.size + 2 * (s - 1)) + (s - 1) * (line + C)
    if s == 2:
        z00 = splat(state, p * state[w] * state[w + 2 * B])
        z01 = splat(state, p * state[w] * state[w + 3 * B])
        z10 = splat(state, p * state[w + B] * state[w + 2 * B])
        z11 = splat(state, p * state[w + B] * state[w + 3 * B])
        for y in range(height):
            for x in range(0, width * C, LANES):
                at, tap = out + y * jump + x, f + y * line + x
                top = fma(z00, load(filters, tap), fma(z01, load(filters, tap - C), load(state, at)))
                tap -= line
                store(state, at, fma(z10, load(filters, tap), fma(z11, load(filters, tap - C), top)))
        return
    for i in range(min(s, height - layer.size + 1)):
        for j in range(min(s, width - layer.size + 1)):
            weight = p if layer.unpooled else p * state[w + i * B] * state[w + (s + j) * B]
            z = splat(state, weight)
            for y in range(layer.size if weight != 0 else 0):
                for x in range(0, layer.size * C, LANES):
                    at = out + (y + i) * jump + j * C + x
                    store(state, at, fma(z, load(filters, f + y * line + x), load(state, at)))
