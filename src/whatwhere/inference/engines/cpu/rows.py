"""Rows of a convolution, computed in the blocks of `register_tiles`."""

from __future__ import annotations

from whatwhere.inference.engines.cpu.register_tiles import dots, product
from whatwhere.inference.engines.jit import Array, jit
from whatwhere.inference.engines.jit.simd import LANES, noinline

OUTPUTS = LANES // 2  # of a block: OUTPUTS × 3 vectors take 24 of 32 registers, or 12 of 16
HALF = OUTPUTS // 2
MORE = OUTPUTS + 1 if LANES == 16 else OUTPUTS  # 27 of 32 registers: one output is not left over then
product_more_3 = product(MORE, 3)
product_all_3, product_half_3, product_one_3 = product(OUTPUTS, 3), product(HALF, 3), product(1, 3)
product_all_2, product_half_2, product_one_2 = product(OUTPUTS, 2), product(HALF, 2), product(1, 2)
product_all_1, product_half_1, product_one_1 = product(OUTPUTS, 1), product(HALF, 1), product(1, 1)
dots_8, dots_4, dots_1 = dots(8), dots(4), dots(1)


@jit
def product_rows(
    times: int, out: Array, out_at: int, out_jump: int, out_step: int, count: int,
    signal: Array, at: int, signal_jump: int, step: int, jump: int, rows: int, depth: int,
    filters: Array, filters_at: int, filters_jump: int, maps: int,
) -> None:  # fmt: skip
    """`times` rows of `count` outputs of all maps; `maps` is a multiple of LANES (see `register_tiles.product`).

    The next row begins `out_jump`, `signal_jump` and `filters_jump` numbers later.
    """
    noinline()
    for k in range(times):
        first = 0
        while first < maps:
            vectors = min(3, (maps - first) // LANES)
            f = filters_at + first + k * filters_jump
            i = 0
            while i < count:
                a, b, left = out_at + first + k * out_jump + i * out_step, at + k * signal_jump + i * step, count - i
                n = OUTPUTS if left >= OUTPUTS else HALF if left >= HALF else 1
                if vectors == 3:
                    if left > OUTPUTS and left % HALF == 1:
                        n = MORE
                        product_more_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                    elif n == OUTPUTS:
                        product_all_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                    elif n == HALF:
                        product_half_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                    else:
                        product_one_3(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                elif vectors == 2:
                    if n == OUTPUTS:
                        product_all_2(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                    elif n == HALF:
                        product_half_2(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                    else:
                        product_one_2(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                elif n == OUTPUTS:
                    product_all_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                elif n == HALF:
                    product_half_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                else:
                    product_one_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, f, maps)
                i += n
            first += vectors * LANES


@jit
def dots_rows(
    times: int, out: Array, out_at: int, out_jump: int, out_step: int, count: int,
    signal: Array, at: int, step: int, jump: int, rows: int, depth: int, filters: Array, filters_at: int,
) -> None:  # fmt: skip
    """`times` rows of `count` outputs of one map (see `register_tiles.dots`)."""
    noinline()
    i = 0
    while i < count:
        size = 8 if count - i >= 8 else 4 if count - i >= 4 else 1
        for k in range(times):
            a, b = out_at + k * out_jump + i * out_step, at + k * jump + i * step
            if size == 8:
                dots_8(out, a, out_step, signal, b, step, jump, rows, depth, filters, filters_at)
            elif size == 4:
                dots_4(out, a, out_step, signal, b, step, jump, rows, depth, filters, filters_at)
            else:
                dots_1(out, a, out_step, signal, b, step, jump, rows, depth, filters, filters_at)
        i += size
