"""Rows of a convolution, computed in the blocks of `register_tiles`."""

from __future__ import annotations

from typing import NamedTuple

from whatwhere.inference.engines.cpu.register_tiles import Windows, dots, product
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import LANES, noinline

OUTPUTS = LANES // 2  # of a block: OUTPUTS × 3 vectors take 24 of 32 registers, or 12 of 16
HALF = OUTPUTS // 2
ONE_MORE = OUTPUTS + 1 if LANES == 16 else OUTPUTS  # 27 of 32 registers: one output is not left over then
product_more_3 = product(ONE_MORE, 3)
product_all_3, product_half_3, product_one_3 = product(OUTPUTS, 3), product(HALF, 3), product(1, 3)
product_all_2, product_half_2, product_one_2 = product(OUTPUTS, 2), product(HALF, 2), product(1, 2)
product_all_1, product_half_1, product_one_1 = product(OUTPUTS, 1), product(HALF, 1), product(1, 1)
dots_8, dots_4, dots_1 = dots(8), dots(4), dots(1)


class Repeats(NamedTuple):
    """Equal rows of `length` outputs: how many, and how far from one to the next outputs, windows and filters are."""

    times: int
    out_jump: int
    signal_jump: int
    filters_jump: int
    length: int


@inline_jit
def shifted(windows: Windows, by: int) -> Windows:
    return Windows(windows.at + by, windows.step, windows.jump, windows.rows, windows.depth)


@jit
def product_rows(
    state: Array, filters: Array, repeats: Repeats, outputs: tuple[int, int], windows: Windows, matrix: tuple[int, int]
) -> None:
    """Rows of outputs of all maps, whose number is a multiple of LANES (see `register_tiles.product`)."""
    noinline()
    maps, count = matrix[1], repeats.length
    for k in range(repeats.times):
        first = 0
        while first < maps:
            vectors = min(3, (maps - first) // LANES)
            f = (matrix[0] + first + k * repeats.filters_jump, maps)
            i = 0
            while i < count:
                out = (outputs[0] + first + k * repeats.out_jump + i * outputs[1], outputs[1])
                signal, left = shifted(windows, k * repeats.signal_jump + i * windows.step), count - i
                n = OUTPUTS if left >= OUTPUTS else HALF if left >= HALF else 1
                if vectors == 3:
                    if left > OUTPUTS and left % HALF == 1:
                        n = ONE_MORE
                        product_more_3(state, filters, out, signal, f)
                    elif n == OUTPUTS:
                        product_all_3(state, filters, out, signal, f)
                    elif n == HALF:
                        product_half_3(state, filters, out, signal, f)
                    else:
                        product_one_3(state, filters, out, signal, f)
                elif vectors == 2:
                    if n == OUTPUTS:
                        product_all_2(state, filters, out, signal, f)
                    elif n == HALF:
                        product_half_2(state, filters, out, signal, f)
                    else:
                        product_one_2(state, filters, out, signal, f)
                elif n == OUTPUTS:
                    product_all_1(state, filters, out, signal, f)
                elif n == HALF:
                    product_half_1(state, filters, out, signal, f)
                else:
                    product_one_1(state, filters, out, signal, f)
                i += n
            first += vectors * LANES


@jit
def dots_rows(
    state: Array, filters: Array, repeats: Repeats, outputs: tuple[int, int], windows: Windows, f: int
) -> None:
    """Rows of outputs of one map, with its filter at f (see `register_tiles.dots`)."""
    noinline()
    i = 0
    while i < repeats.length:
        left = repeats.length - i
        size = 8 if left >= 8 else 4 if left >= 4 else 1
        for k in range(repeats.times):
            out = (outputs[0] + k * repeats.out_jump + i * outputs[1], outputs[1])
            signal = shifted(windows, k * repeats.signal_jump + i * windows.step)
            if size == 8:
                dots_8(state, filters, out, signal, f)
            elif size == 4:
                dots_4(state, filters, out, signal, f)
            else:
                dots_1(state, filters, out, signal, f)
        i += size
