"""The two directions of `ops.convolution` for one image, in the way that is fastest for the sizes at hand.

Where the layer below has whole vectors of maps, Winograd's; onto and from the few channels of an image, directly;
and down from a few non-zero features, only those.
"""

from __future__ import annotations

from whatwhere.inference.engines.cpu.pooling import Layer, place
from whatwhere.inference.engines.cpu.rows import Array, compiled, dots_row, product_row, spliced
from whatwhere.inference.engines.cpu.simd import LANES, apart, fma, load, some_nonzero, splat, store
from whatwhere.inference.engines.cpu.winograd import correlate


@spliced
def convolve_up(state: Array, filters: Array, below: Layer, layer: Layer) -> None:
    """The error at p_{k-1} to the error at z_k: a full correlation."""
    K, C, B = layer.size, below.maps, layer.maps
    jump, pitch = (below.columns + 2 * below.border) * C, layer.columns * layer.pool * B
    if layer.winograd:
        correlate(
            state, below.error, jump, C, layer.z_error, pitch, B, layer.height, layer.width, K,
            filters, layer.up, layer.work, layer.patches, layer.products,
        )  # fmt: skip
        return
    for y in range(layer.height):
        skipped = max(0, below.border - y)  # rows of the border
        rows = min(K, below.border + below.rows - y) - skipped
        signal, f = below.error + (y + skipped) * jump, layer.up + skipped * K * C * B
        out = layer.z_error + y * pitch
        product_row(state, out, B, layer.width, state, signal, C, jump, rows, K * C, filters, f, B)


@spliced
def convolve_down(state: Array, filters: Array, below: Layer, layer: Layer, target: int) -> None:
    """z_k to the signal at p_{k-1}: a valid convolution."""
    K, C, B = layer.size, below.maps, layer.maps
    jump, pitch = layer.columns * layer.pool * B, (below.columns + 2 * below.border) * C
    first = place(below, target, 0, 0)
    if layer.winograd:
        correlate(
            state, layer.z, jump, B, first, pitch, C, below.rows, below.columns, K,
            filters, layer.down, layer.work, layer.patches, layer.products,
        )  # fmt: skip
        return
    for y in range(below.rows):
        signal, out = layer.z + y * jump, first + y * pitch
        if C % LANES == 0:
            product_row(state, out, C, below.columns, state, signal, B, jump, K, K * B, filters, layer.down, C)
        else:
            for c in range(C):
                f = layer.down + c * K * K * B
                dots_row(state, out + c, C, below.columns, state, signal, B, jump, K, K * B, filters, f)


@compiled
def scatter_down(state: Array, filters: Array, below: Layer, layer: Layer, target: int) -> None:
    """Unpool and convolve the top's features, touching only those that are not zero."""
    apart()
    K, C, B, s = layer.size, below.maps, layer.maps, layer.pool
    jump = (below.columns + 2 * below.border) * C
    state[target : target + (below.rows + 2 * below.border) * jump] = 0
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = place(layer, layer.features, row, column)
            w_at = layer.weights + (row * layer.columns + column) * 2 * s * B
            for b0 in range(0, B, LANES):
                if not some_nonzero(load(state, p_at + b0)):
                    continue
                for b in range(b0, b0 + LANES):
                    p = state[p_at + b]
                    if p == 0:
                        continue
                    for i in range(min(s, layer.height - row * s)):
                        for j in range(min(s, layer.width - column * s)):
                            z = splat(state, p * state[w_at + i * B + b] * state[w_at + (s + j) * B + b])
                            out = target + (row * s + i) * jump + (column * s + j) * C
                            f = layer.scatter + b * K * K * C
                            for y in range(K):
                                for x in range(0, K * C, LANES):
                                    at = out + y * jump + x
                                    store(state, at, fma(z, load(filters, f + y * K * C + x), load(state, at)))
