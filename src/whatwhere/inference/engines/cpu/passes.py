"""The passes over one image: Numba versions of `ops.convolution` and of pooling and unpooling.

`state` is everything about one image, `layers` the table that says where it lies (see `layout`).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from whatwhere.inference.engines.cpu.simd import (
    LANES,
    apart,
    fma,
    load,
    some_nonzero,
    splat,
    store,
)
from whatwhere.inference.engines.cpu.tiles import dots, product

compiled = numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy")
Array = np.ndarray
Layer = Any  # one row of the table

product_8_3, product_8_2, product_8_1 = product(8, 3), product(8, 2), product(8, 1)
product_4_3, product_4_2, product_4_1 = product(4, 3), product(4, 2), product(4, 1)
product_1_1 = product(1, 1)
dots_8, dots_4, dots_1 = dots(8), dots(4), dots(1)


@compiled
def convolve_row(
    out: Array, out_at: int, out_step: int, count: int,
    signal: Array, at: int, step: int, jump: int, rows: int, depth: int,
    filters: Array, filters_at: int, maps: int,
) -> None:  # fmt: skip
    """`count` outputs of all maps side by side, in blocks that fit the registers."""
    apart()
    first = 0
    while first < maps:
        vectors = min(3, (maps - first) // LANES)
        o, f = out_at + first, filters_at + first
        i = 0
        while count - i >= 8:
            a, b = o + i * out_step, at + i * step
            if vectors == 3:
                product_8_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
            elif vectors == 2:
                product_8_2(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
            else:
                product_8_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
            i += 8
        while count - i >= 4:
            a, b = o + i * out_step, at + i * step
            if vectors == 3:
                product_4_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
            elif vectors == 2:
                product_4_2(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
            else:
                product_4_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
            i += 4
        while i < count:
            for v in range(vectors):
                product_1_1(
                    out, o + i * out_step + v * LANES, out_step, signal, at + i * step, step, jump, rows, depth,
                    filters, f + v * LANES, maps,
                )  # fmt: skip
            i += 1
        first += vectors * LANES


@compiled
def convolve_up(state: Array, filters: Array, below: Layer, layer: Layer) -> None:
    """The error at p_{k-1} to the error at z_k: a full correlation, over the rows that are not border."""
    apart()
    K, C, B = layer.size, below.maps, layer.maps
    jump = (below.columns + 2 * below.border) * C
    for y in range(layer.height):
        skipped = max(0, below.border - y)
        rows = min(K, below.border + below.rows - y) - skipped
        out = layer.z_error + y * layer.columns * layer.pool * B
        signal, f = below.error + (y + skipped) * jump, layer.up + skipped * K * C * B
        convolve_row(state, out, B, layer.width, state, signal, C, jump, rows, K * C, filters, f, B)


@compiled
def convolve_down(state: Array, filters: Array, below: Layer, layer: Layer, target: int) -> None:
    """z_k to the signal at p_{k-1}: a valid convolution."""
    apart()
    K, C, B = layer.size, below.maps, layer.maps
    jump = layer.columns * layer.pool * B
    for y in range(below.rows):
        signal = layer.z + y * jump
        out = target + ((y + below.border) * (below.columns + 2 * below.border) + below.border) * C
        if C % LANES == 0:
            convolve_row(state, out, C, below.columns, state, signal, B, jump, K, K * B, filters, layer.down, C)
            continue
        for c in range(C):
            f = layer.down + c * K * K * B
            x = 0
            while below.columns - x >= 8:
                dots_8(state, out + x * C + c, C, state, signal + x * B, B, jump, K, K * B, filters, f)
                x += 8
            while below.columns - x >= 4:
                dots_4(state, out + x * C + c, C, state, signal + x * B, B, jump, K, K * B, filters, f)
                x += 4
            while x < below.columns:
                dots_1(state, out + x * C + c, C, state, signal + x * B, B, jump, K, K * B, filters, f)
                x += 1


@compiled
def place(layer: Layer, start: int, row: int, column: int) -> int:
    """Where the maps of one place of p_k begin, in a signal that begins at `start`."""
    return start + ((row + layer.border) * (layer.columns + 2 * layer.border) + column + layer.border) * layer.maps


@compiled
def unpool(state: Array, layer: Layer, source: int) -> None:
    """z = w_y w_x p everywhere."""
    apart()
    B, s = layer.maps, layer.pool
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = place(layer, source, row, column)
            w_at = layer.weights + (row * layer.columns + column) * 2 * s * B
            for b in range(0, B, LANES):
                p = load(state, p_at + b)
                for i in range(s):
                    scaled = p * load(state, w_at + i * B + b)
                    z_at = layer.z + ((row * s + i) * layer.columns + column) * s * B + b
                    for j in range(s):
                        store(state, z_at + j * B, scaled * load(state, w_at + (s + j) * B + b))


@compiled
def pool(state: Array, layer: Layer) -> None:
    """The error at z_k to the error at p_k:  Σ w_y w_x error."""
    apart()
    B, s = layer.maps, layer.pool
    for row in range(layer.rows):
        for column in range(layer.columns):
            e_at = place(layer, layer.error, row, column)
            w_at = layer.weights + (row * layer.columns + column) * 2 * s * B
            for b in range(0, B, LANES):
                pooled = splat(state, 0)
                for i in range(s):
                    z_at = layer.z_error + ((row * s + i) * layer.columns + column) * s * B + b
                    line = splat(state, 0)
                    for j in range(s):
                        line = fma(load(state, z_at + j * B), load(state, w_at + (s + j) * B + b), line)
                    pooled = fma(line, load(state, w_at + i * B + b), pooled)
                store(state, e_at + b, pooled)


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
