"""Rows of a convolution, cut into the blocks of `tiles` that fit the registers."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from whatwhere.inference.engines.cpu.simd import LANES, apart
from whatwhere.inference.engines.cpu.tiles import dots, product

OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
compiled = numba.njit(**OPTIONS)
spliced = numba.njit(inline="always", **OPTIONS)  # into its caller: every function of its own is optimised anew there
Array = np.ndarray

product_8_3, product_4_3, product_1_3 = product(8, 3), product(4, 3), product(1, 3)
product_8_1, product_4_1, product_1_1 = product(8, 1), product(4, 1), product(1, 1)
dots_8, dots_4, dots_1 = dots(8), dots(4), dots(1)


@compiled
def product_row(
    out: Array, out_at: int, out_step: int, count: int,
    signal: Array, at: int, step: int, jump: int, rows: int, depth: int,
    filters: Array, filters_at: int, maps: int,
) -> None:  # fmt: skip
    """`count` outputs of all maps side by side; `maps` is a multiple of LANES (see `tiles.product`)."""
    apart()
    first = 0
    while first < maps:
        three = maps - first >= 3 * LANES
        o, f = out_at + first, filters_at + first
        i = 0
        while i < count:
            a, b = o + i * out_step, at + i * step
            if count - i >= 8:
                if three:
                    product_8_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                else:
                    product_8_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                i += 8
            elif count - i >= 4:
                if three:
                    product_4_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                else:
                    product_4_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                i += 4
            else:
                if three:
                    product_1_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                else:
                    product_1_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                i += 1
        first += 3 * LANES if three else LANES


@compiled
def dots_row(
    out: Array, out_at: int, out_step: int, count: int,
    signal: Array, at: int, step: int, jump: int, rows: int, depth: int,
    filters: Array, filters_at: int,
) -> None:  # fmt: skip
    """`count` outputs of one map side by side (see `tiles.dots`)."""
    apart()
    i = 0
    while i < count:
        a, b = out_at + i * out_step, at + i * step
        if count - i >= 8:
            dots_8(out, a, out_step, signal, b, step, jump, rows, depth, filters, filters_at)
            i += 8
        elif count - i >= 4:
            dots_4(out, a, out_step, signal, b, step, jump, rows, depth, filters, filters_at)
            i += 4
        else:
            dots_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, filters_at)
            i += 1
