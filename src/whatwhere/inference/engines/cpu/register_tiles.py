"""The two inner loops that take most of the time, as LLVM instructions: a block of a matrix product in registers.

A convolution of maps stored as [row, column, map] is a matrix product: the columns and maps that one row of the
filter covers are contiguous in memory, so a row of a window is a run of `depth` numbers, and the next row of the
window begins `jump` numbers later. Output i of a block reads the window that starts at i · step.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from whatwhere.inference.engines.jit.simd import (
    LANES,
    broadcast,
    call,
    intrinsic,
    load_vector,
    pointer,
    store_vector,
    sum_lanes,
    unpack,
    vector_ir,
)


class Windows(NamedTuple):
    """Windows of a signal: where the first begins, the distance of one output's to the next, the distance of its rows,
    how many these are, and their length."""

    at: int
    step: int
    jump: int
    rows: int
    depth: int


@cache
def product(outputs: int, vectors: int) -> Any:
    """Make the function that computes `outputs` × `vectors` vectors of a convolution.

        out[i, v] = Σ_row Σ_d  signal[i · step + row · jump + d]  ·  filters[row, d, v]

    Number d of a window is broadcast; the filters of LANES maps are one vector. Signal and outputs are in the state:
    `out` = (where these begin, how far apart they are), `matrix` = (where the filters begin, how many maps they have).
    """

    @intrinsic
    def tile(
        typingctx: Any, state: Any, filters: Any, out: Any, windows: Any, matrix: Any
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, f, (out_at, out_step), (at, step, jump, rows, depth), (f_at, maps) = unpack(builder, arguments)
            dtype = state.dtype
            zero = ir.Constant(vector_ir(dtype), None)
            sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(vectors)] for _ in range(outputs)]
            with cgutils.for_range(builder, rows) as row:
                window = [
                    pointer(context, builder, state, source, _affine(builder, at, (i, step), (row.index, jump)))
                    for i in range(outputs)
                ]
                first = builder.mul(row.index, depth)
                with cgutils.for_range(builder, depth) as d:
                    line = builder.mul(builder.add(first, d.index), maps)
                    lines = pointer(context, builder, filters, f, builder.add(f_at, line))
                    weights = [
                        load_vector(builder, builder.gep(lines, [_number(v * LANES)]), dtype) for v in range(vectors)
                    ]
                    for i in range(outputs):
                        value = broadcast(builder, builder.load(builder.gep(window[i], [d.index])))
                        for v in range(vectors):
                            builder.store(call(builder, "fma", value, weights[v], builder.load(sums[i][v])), sums[i][v])
            for i in range(outputs):
                for v in range(vectors):
                    offset = _affine(builder, out_at, (i, out_step), (v, _number(LANES)))
                    to = pointer(context, builder, state, source, offset)
                    store_vector(builder, builder.load(sums[i][v]), to, dtype)
            return context.get_dummy_value()

        return types.void(state, filters, out, windows, matrix), codegen

    return tile


@cache
def dots(outputs: int) -> Any:
    """Make the function that computes `outputs` numbers of a convolution onto one map.

    out[i] = Σ_row Σ_d  signal[i · step + row · jump + d] · filters[row, d];  depth is a multiple of LANES.
    """

    @intrinsic
    def tile(
        typingctx: Any, state: Any, filters: Any, out: Any, windows: Any, filters_at: Any
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, f, (out_at, out_step), (at, step, jump, rows, depth), f_at = unpack(builder, arguments)
            dtype = state.dtype
            zero = ir.Constant(vector_ir(dtype), None)
            sums = [cgutils.alloca_once_value(builder, zero) for _ in range(outputs)]
            with cgutils.for_range(builder, rows) as row:
                window = [
                    pointer(context, builder, state, source, _affine(builder, at, (i, step), (row.index, jump)))
                    for i in range(outputs)
                ]
                line = pointer(context, builder, filters, f, _affine(builder, f_at, (row.index, depth)))
                with cgutils.for_range_slice(builder, _number(0), depth, _number(LANES), inc=True) as (d, _):
                    weights = load_vector(builder, builder.gep(line, [d]), dtype)
                    for i in range(outputs):
                        value = load_vector(builder, builder.gep(window[i], [d]), dtype)
                        builder.store(call(builder, "fma", value, weights, builder.load(sums[i])), sums[i])
            for i in range(outputs):
                place = pointer(context, builder, state, source, _affine(builder, out_at, (i, out_step)))
                builder.store(sum_lanes(builder, builder.load(sums[i]), dtype), place)
            return context.get_dummy_value()

        return types.void(state, filters, out, windows, types.intp), codegen

    return tile


def _number(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


def _affine(builder: Any, start: Any, *terms: tuple[Any, Any]) -> Any:
    """start + Σ count · stride."""
    for count, stride in terms:
        count = _number(count) if isinstance(count, int) else count
        start = builder.add(start, builder.mul(count, stride))
    return start
