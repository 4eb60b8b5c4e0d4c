"""Arithmetic on vectors: operators, functions, and the formulas of `formulas` compiled by
Numba.

Numbers among vectors are broadcast. Products and sums are fused where the processor can.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.core.base import BaseContext
from numba.core.typing.context import Context as TypingContext
from numba.core.typing.templates import Signature

from whatwhere.engines.jit import inline_jit
from whatwhere.engines.jit.simd import (
    LANES,
    Lanes,
    Lowering,
    Vector,
    broadcast,
    call,
    intrinsic,
    vector_ir,
)
from whatwhere.formulas import compile_formulas

TINY = 2e-35  # `exp` returns zero below this
# in float32 and float64: an integer added to it ends up in the last bits
SHIFTS = (
    1.5 * 2.0**23,
    1.5 * 2.0**52,
)


class Mask(types.Type):
    """What comparing two vectors gives: LANES truth values; `dtype` is that of the vectors."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"Mask({dtype}x{LANES})")


@extending.register_model(Mask)
class MaskModel(extending.models.PrimitiveModel):
    def __init__(self, dmm: object, fe_type: Mask) -> None:
        super().__init__(dmm, fe_type, ir.VectorType(ir.IntType(1), LANES))


def _result_type(typingctx: TypingContext, *kinds: types.Type) -> types.Type:
    """Return the type of what is computed from vectors and numbers: a vector if there is one among
    them."""
    vector = next((kind for kind in kinds if isinstance(kind, Vector)), None)
    if vector is not None:
        return vector
    number = typingctx.unify_types(*kinds)
    return number if isinstance(number, types.Float) else types.float64


def _lift(
    context: BaseContext,
    builder: ir.IRBuilder,
    kind: types.Type,
    signature: Signature,
    arguments: Sequence[ir.Value],
) -> list[ir.Value]:
    """Arguments as values of one type: numbers are cast and, to vectors, broadcast."""
    dtype = kind.dtype if isinstance(kind, Vector) else kind
    numbers = zip(signature.args, arguments, strict=True)
    values = [
        a if isinstance(own, Vector) else context.cast(builder, a, own, dtype) for own, a in numbers
    ]
    if kind is dtype:
        return values
    return [a if isinstance(a.type, ir.VectorType) else broadcast(builder, a) for a in values]


@intrinsic
def rsqrt(typingctx: TypingContext, a: Vector) -> Lowering | None:
    """1 / √a. In float32 LLVM may use the processor's estimate and refine it to full precision."""

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        one = ir.Constant(vector_ir(a.dtype), [1.0] * LANES)
        return builder.fdiv(
            one, call(builder, "sqrt", *arguments, flags=("fast",)), flags=("fast",)
        )

    return a(a), codegen


@intrinsic
def where(
    typingctx: TypingContext, condition: Mask, yes: types.Type, no: types.Type
) -> Lowering | None:
    """In every lane, `yes` where the condition holds and `no` elsewhere; also for numbers."""
    vector = isinstance(condition, Mask)
    kind = Vector(condition.dtype) if vector else _result_type(typingctx, yes, no)

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        choices = signature.replace(args=signature.args[1:])
        return builder.select(arguments[0], *_lift(context, builder, kind, choices, arguments[1:]))

    return kind(condition, yes, no), codegen


@intrinsic
def _has_float64(typingctx: TypingContext, a: Vector) -> Lowering | None:
    """Tell whether the lanes are float64, as a constant."""
    return types.boolean(a), lambda context, builder, signature, arguments: context.get_constant(
        types.boolean, a.dtype == types.float64
    )


@intrinsic
def _add_exponent(typingctx: TypingContext, a: Vector, n: types.Type) -> Lowering | None:
    """a · 2^n for the integer in the last bits of n, which is added to the exponent of a."""
    bits, mantissa = (32, 23) if a.dtype == types.float32 else (64, 52)

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        integers = ir.VectorType(ir.IntType(bits), LANES)
        number, n = (builder.bitcast(argument, integers) for argument in arguments)
        exponent = builder.shl(n, ir.Constant(integers, [mantissa] * LANES))
        return builder.bitcast(builder.add(number, exponent), vector_ir(a.dtype))

    return a(a, a), codegen


def _function(name: str, count: int) -> Callable[..., Any]:
    """Make an LLVM intrinsic of one to three vectors or numbers as a function in Numba code."""

    def define(typingctx: TypingContext, *kinds: types.Type) -> Lowering | None:
        kind = _result_type(typingctx, *kinds)

        def codegen(
            context: BaseContext,
            builder: ir.IRBuilder,
            signature: Signature,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            return call(builder, name, *_lift(context, builder, kind, signature, arguments))

        return kind(*kinds), codegen

    of_one = intrinsic(lambda typingctx, a: define(typingctx, a))
    of_two = intrinsic(lambda typingctx, a, b: define(typingctx, a, b))
    of_three = intrinsic(lambda typingctx, a, b, c: define(typingctx, a, b, c))
    return (of_one, of_two, of_three)[count - 1]


absolute, sqrt = _function("fabs", 1), _function("sqrt", 1)
minimum, maximum, power = _function("minnum", 2), _function("maxnum", 2), _function("pow", 2)
fma = _function("fma", 3)  # a b + c, rounded once


def _operator(
    symbol: Callable[..., object],
    result: Callable[[types.Float], types.Type],
    instruction: Callable[..., ir.Value],
) -> None:
    """Define an operator between vectors, and between a vector and a number."""

    @extending.type_callable(symbol)
    def typed(context: TypingContext) -> Callable[..., types.Type | None]:
        def typer(a: types.Type, b: types.Type) -> types.Type | None:
            if isinstance(a, Vector) and (a == b or isinstance(b, types.Number)):
                return result(a.dtype)
            if isinstance(b, Vector) and isinstance(a, types.Number):
                return result(b.dtype)
            return None

        return typer

    def lowered(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        kind = Vector(signature.return_type.dtype)
        return instruction(builder, *_lift(context, builder, kind, signature, arguments))

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        extending.lower_builtin(symbol, *kinds)(lowered)


_operator(operator.add, Vector, lambda builder, a, b: builder.fadd(a, b, flags=("contract",)))
_operator(operator.sub, Vector, lambda builder, a, b: builder.fsub(a, b, flags=("contract",)))
_operator(operator.mul, Vector, lambda builder, a, b: builder.fmul(a, b, flags=("contract",)))
_operator(operator.truediv, Vector, lambda builder, a, b: builder.fdiv(a, b, flags=("contract",)))
_operator(operator.gt, Mask, lambda builder, a, b: builder.fcmp_ordered(">", a, b))
_operator(operator.eq, Mask, lambda builder, a, b: builder.fcmp_ordered("==", a, b))
_operator(operator.ne, Mask, lambda builder, a, b: builder.fcmp_unordered("!=", a, b))


@extending.type_callable(operator.neg)
def _type_neg(context: TypingContext) -> Callable[[types.Type], types.Type | None]:
    return lambda a: a if isinstance(a, Vector) else None


@extending.lower_builtin(operator.neg, Vector)  # type: ignore[untyped-decorator]
def _lower_neg(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
) -> ir.Value:
    return builder.fneg(arguments[0])


@inline_jit
def exp(a: Lanes) -> Lanes:
    """e^a of a vector with a ≤ 0: 2^n e^r with a series in the small r; exactly zero below TINY."""
    a = maximum(a, -80.0)
    shift = SHIFTS[1] if _has_float64(a) else SHIFTS[0]
    shifted = fma(a, 1.4426950408889634, shift)
    r = fma(shifted - shift, -0.6931471805599453, a)
    square = r * r
    e = cubic(r, square, (1 / 24, 1 / 120, 1 / 720, 1 / 5040))
    if _has_float64(a):
        e = fma(
            cubic(r, square, (1 / 40320, 1 / 362880, 1 / 3628800, 1 / 39916800)), square * square, e
        )
    e = fma(e, square * square, cubic(r, square, (1.0, 1.0, 1 / 2, 1 / 6)))
    return maximum(_add_exponent(e, shifted) - TINY, 0.0)


@inline_jit
def cubic(r: Lanes, square: Lanes, c: tuple[float, float, float, float]) -> Lanes:
    """c₀ + c₁ r + c₂ r² + c₃ r³, as two halves that a processor computes at the same time."""
    return fma(fma(c[3], r, c[2]), square, fma(c[1], r, c[0]))


@inline_jit
def clamp(x: Lanes, low: Lanes | float, high: Lanes | float) -> Lanes:
    return minimum(maximum(x, low), high)


formulas: Any = compile_formulas(
    inline_jit,
    abs=absolute,
    clamp=clamp,
    exp=exp,
    maximum=maximum,
    pow=power,
    rsqrt=rsqrt,
    sqrt=sqrt,
    where=where,
)
