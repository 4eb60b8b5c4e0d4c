"""Rows of a convolution in blocks of a matrix product in registers, written as LLVM instructions,
because inference spends most of its time here.

A convolution of maps stored as [row, column, map] is a matrix product: the columns and maps that
one row of the filter covers are contiguous in memory, so a row of a window is a run of `depth`
numbers, and the next row of the window begins `jump` numbers later. Output i of a block reads the
window that starts at i · step.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing.context import Context as TypingContext
from numba.core.typing.templates import Signature

from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.simd import (
    LANES,
    FloatArray,
    Lowering,
    broadcast,
    call,
    intrinsic,
    load_vector,
    noinline,
    pointer,
    store_vector,
    sum_lanes,
    unpack,
    vector_ir,
)


class Windows(NamedTuple):
    """Windows of a signal: where the first begins, the distance of one output's to the next, the
    distance of its rows, how many these are, and their length."""

    at: int
    step: int
    jump: int
    rows: int
    depth: int


@cache
def product(outputs: int, vectors: int, dot: bool = False) -> Callable[..., Any]:
    """Make the function that computes `outputs` × `vectors` vectors of a convolution.

        out[i, v] = Σ_row Σ_d  signal[i · step + row · jump + d]  ·  filters[row, d, v]

    Number d of a window is broadcast; the filters of LANES maps are one vector. Signal and outputs
    are in the state: `out` = (where these begin, how far apart they are), `matrix` = (where the
    filters begin, how many maps they have).

    With `dot`, outputs of a single map: LANES numbers d at a time (depth is a multiple) times one
    vector of filters; the lanes are added up at the end.
    """

    @intrinsic
    def tile(
        typingctx: TypingContext,
        state: FloatArray,
        filters: FloatArray,
        out: types.Type,
        windows: types.Type,
        matrix: types.Type,
    ) -> Lowering | None:
        def codegen(
            context: BaseContext,
            builder: ir.IRBuilder,
            signature: Signature,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            source, f, (out_at, out_step), (at, step, jump, rows, depth), (f_at, maps) = unpack(
                builder, arguments
            )
            dtype = state.dtype
            zero = ir.Constant(vector_ir(dtype), None)
            sums = [
                [cgutils.alloca_once_value(builder, zero) for _ in range(vectors)]
                for _ in range(outputs)
            ]
            with cgutils.for_range(builder, rows) as row:
                window = [
                    pointer(
                        context,
                        builder,
                        state,
                        source,
                        _affine(builder, at, (i, step), (row.index, jump)),
                    )
                    for i in range(outputs)
                ]
                first = _affine(builder, f_at, (builder.mul(row.index, depth), maps))
                filter_row = pointer(context, builder, filters, f, first)
                advance = _number(LANES if dot else 1)
                numbers = cgutils.for_range_slice(builder, _number(0), depth, advance, inc=True)
                with numbers as (d, _):
                    lines = builder.gep(filter_row, [d if dot else builder.mul(d, maps)])
                    _add_products(builder, sums, window, d, lines, dot, dtype)
            for i in range(outputs):
                for v in range(vectors):
                    offset = _affine(builder, out_at, (i, out_step), (v, _number(LANES)))
                    to = pointer(context, builder, state, source, offset)
                    total = builder.load(sums[i][v])
                    if dot:
                        builder.store(sum_lanes(builder, total, dtype), to)
                    else:
                        store_vector(builder, total, to, dtype)
            return context.get_dummy_value()

        return types.void(state, filters, out, windows, matrix), codegen

    return tile


def _add_products(
    builder: ir.IRBuilder,
    sums: Sequence[Sequence[ir.Value]],
    window: Sequence[ir.Value],
    d: ir.Value,
    lines: ir.Value,
    dot: bool,
    dtype: types.Float,
) -> None:
    """Add number d of every window, times its filters, to the sums [outputs][vectors]."""
    weights = [
        load_vector(builder, builder.gep(lines, [_number(v * LANES)]), dtype)
        for v in range(len(sums[0]))
    ]
    for signal, totals in zip(window, sums, strict=True):
        place = builder.gep(signal, [d])
        if dot:
            value = load_vector(builder, place, dtype)
        else:
            value = broadcast(builder, builder.load(place))
        for weight, total in zip(weights, totals, strict=True):
            builder.store(call(builder, "fma", value, weight, builder.load(total)), total)


def _number(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


def _affine(
    builder: ir.IRBuilder, start: ir.Value, *terms: tuple[ir.Value | int, ir.Value]
) -> ir.Value:
    """start + Σ count · stride."""
    for count, stride in terms:
        count = _number(count) if isinstance(count, int) else count
        start = builder.add(start, builder.mul(count, stride))
    return start


OUTPUTS = LANES // 2  # of a block: OUTPUTS × 3 vectors take 24 of 32 registers, or 12 of 16
HALF = OUTPUTS // 2
# 27 of 32 registers: one output is not left over then
ONE_MORE = OUTPUTS + 1 if LANES == 16 else OUTPUTS


class Repeats(NamedTuple):
    """Equal rows of `length` outputs: how many, and how far from one to the next outputs, windows
    and filters are."""

    times: int
    out_jump: int
    signal_jump: int
    filters_jump: int
    length: int


@inline_jit
def shifted(windows: Windows, by: int) -> Windows:
    return Windows(windows.at + by, windows.step, windows.jump, windows.rows, windows.depth)


def row_of(vectors: int) -> Callable[..., None]:
    """Make the function that computes a row of `count` outputs for a number of vectors of maps."""
    more, whole, half, one = (product(n, vectors) for n in (ONE_MORE, OUTPUTS, HALF, 1))

    @jit
    def row(
        state: Array,
        filters: Array,
        count: int,
        out: tuple[int, int],
        windows: Windows,
        matrix: tuple[int, int],
    ) -> None:
        noinline()
        i = 0
        while i < count:
            at, signal, left = (
                (out[0] + i * out[1], out[1]),
                shifted(windows, i * windows.step),
                count - i,
            )
            if left > OUTPUTS and left % HALF == 1:
                more(state, filters, at, signal, matrix)
                i += ONE_MORE
            elif left >= OUTPUTS:
                whole(state, filters, at, signal, matrix)
                i += OUTPUTS
            elif left >= HALF:
                half(state, filters, at, signal, matrix)
                i += HALF
            else:
                one(state, filters, at, signal, matrix)
                i += 1

    return row


row_of_1, row_of_2, row_of_3 = row_of(1), row_of(2), row_of(3)


@jit
def product_rows(
    state: Array,
    filters: Array,
    repeats: Repeats,
    outputs: tuple[int, int],
    windows: Windows,
    matrix: tuple[int, int],
) -> None:
    """Rows of outputs of all maps, whose number is a multiple of LANES (see `product`)."""
    noinline()
    maps, count = matrix[1], repeats.length
    for k in range(repeats.times):
        for first in range(0, maps, 3 * LANES):
            out = (outputs[0] + first + k * repeats.out_jump, outputs[1])
            signal = shifted(windows, k * repeats.signal_jump)
            f = (matrix[0] + first + k * repeats.filters_jump, maps)
            if maps - first >= 3 * LANES:
                row_of_3(state, filters, count, out, signal, f)
            elif maps - first == 2 * LANES:
                row_of_2(state, filters, count, out, signal, f)
            else:
                row_of_1(state, filters, count, out, signal, f)


dots_8, dots_4, dots_1 = (product(n, 1, dot=True) for n in (8, 4, 1))


@jit
def dots_rows(
    state: Array,
    filters: Array,
    repeats: Repeats,
    outputs: tuple[int, int],
    windows: Windows,
    f: int,
) -> None:
    """Rows of outputs of one map, with its filter at f (see `product`)."""
    noinline()
    i, matrix = 0, (f, 1)
    while i < repeats.length:
        left = repeats.length - i
        size = 8 if left >= 8 else 4 if left >= 4 else 1
        for k in range(repeats.times):
            out = (outputs[0] + k * repeats.out_jump + i * outputs[1], outputs[1])
            signal = shifted(windows, k * repeats.signal_jump + i * windows.step)
            if size == 8:
                dots_8(state, filters, out, signal, matrix)
            elif size == 4:
                dots_4(state, filters, out, signal, matrix)
            else:
                dots_1(state, filters, out, signal, matrix)
        i += size
