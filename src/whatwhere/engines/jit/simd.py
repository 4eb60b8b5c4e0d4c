"""Vectors of LANES numbers as values in Numba code: vectorisation is explicit and does not depend
on the optimiser.

`load`, `store` and arithmetic on vectors compile to vector instructions in every loop. On a
processor with narrower registers each becomes two instructions.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.codegen import get_host_cpu_features
from numba.core.typing.context import Context as TypingContext
from numba.core.typing.templates import Signature

# 16 with 32 registers of 16 numbers; otherwise 8, which take two registers of ARM or one of AVX.
# The vectors of a loop must fit in the registers.
LANES = 16 if "+avx512f" in get_host_cpu_features() else 8

FloatArray: TypeAlias = "types.Array[types.Float]"
"""The type of an array of numbers in memory."""


class Lanes(Protocol):
    """What kernels compute with: LANES numbers, or one."""

    def __add__(self, other: "Lanes | float", /) -> "Lanes": ...
    def __radd__(self, other: float, /) -> "Lanes": ...
    def __sub__(self, other: "Lanes | float", /) -> "Lanes": ...
    def __rsub__(self, other: float, /) -> "Lanes": ...
    def __mul__(self, other: "Lanes | float", /) -> "Lanes": ...
    def __rmul__(self, other: float, /) -> "Lanes": ...
    def __truediv__(self, other: "Lanes | float", /) -> "Lanes": ...
    def __rtruediv__(self, other: float, /) -> "Lanes": ...
    def __gt__(self, other: "Lanes | float", /) -> bool: ...
    def __neg__(self) -> "Lanes": ...


Pair: TypeAlias = tuple[Lanes, Lanes]
"""(μ, γ) along an axis, or their gradients."""

Lowering = tuple[Signature, Callable[..., ir.Value]]
"""What an intrinsic function returns: its types, and what makes its instructions."""


def intrinsic(define: Callable[..., Lowering | None]) -> Any:
    """Numba's decorator: the result is called from compiled code, without the typing context."""
    return extending.intrinsic(define)


class Vector(types.Type):
    """LANES numbers of one dtype."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype}x{LANES})")


@extending.register_model(Vector)
class VectorModel(extending.models.PrimitiveModel):
    def __init__(self, dmm: object, fe_type: Vector) -> None:
        super().__init__(dmm, fe_type, vector_ir(fe_type.dtype))


def vector_ir(dtype: types.Float) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if dtype == types.float32 else ir.DoubleType(), LANES)


def pointer(
    context: BaseContext,
    builder: ir.IRBuilder,
    array_type: FloatArray,
    array: ir.Value,
    index: ir.Value,
) -> ir.Value:
    """Return the address of element `index` of a one-dimensional contiguous array."""
    return builder.gep(
        cgutils.create_struct_proxy(array_type)(context, builder, array).data, [index]
    )


def load_vector(builder: ir.IRBuilder, at: ir.Value, dtype: types.Float) -> ir.Value:
    return builder.load(
        builder.bitcast(at, vector_ir(dtype).as_pointer()), align=dtype.bitwidth // 8
    )


def store_vector(builder: ir.IRBuilder, value: ir.Value, at: ir.Value, dtype: types.Float) -> None:
    builder.store(
        value, builder.bitcast(at, vector_ir(dtype).as_pointer()), align=dtype.bitwidth // 8
    )


def broadcast(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    """Make a vector with the same number in every lane."""
    empty = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    one = builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        one, empty, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    )


def unpack(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> list[ir.Value]:
    """Arguments, tuples of numbers among them as lists."""
    return [
        cgutils.unpack_tuple(builder, a) if isinstance(a.type, ir.ArrayType) else a
        for a in arguments
    ]


def call(
    builder: ir.IRBuilder, name: str, *arguments: ir.Value, flags: tuple[str, ...] = ()
) -> ir.Value:
    """Call the LLVM intrinsic of this name on vectors, or on numbers."""
    kind = arguments[0].type
    element, suffix = (kind.element, f"v{LANES}") if isinstance(kind, ir.VectorType) else (kind, "")
    function = ir.FunctionType(kind, [kind] * len(arguments))
    bits = 32 if element == ir.FloatType() else 64
    callee = cgutils.get_or_insert_function(
        builder.module, function, f"llvm.{name}.{suffix}f{bits}"
    )
    return builder.call(callee, arguments, fastmath=flags)


def _is_plain(array: object) -> bool:
    return isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"


@intrinsic
def load(typingctx: TypingContext, array: FloatArray, index: types.Type) -> Lowering | None:
    """Return the vector array[index : index + LANES]."""
    if not _is_plain(array):
        return None

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        at = pointer(context, builder, array, *arguments)
        return load_vector(builder, at, array.dtype)

    return Vector(array.dtype)(array, types.intp), codegen


@intrinsic
def store(
    typingctx: TypingContext, array: FloatArray, index: types.Type, value: types.Type
) -> Lowering | None:
    """array[index : index + LANES] = value."""
    if not _is_plain(array):
        return None

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        store_vector(
            builder, arguments[2], pointer(context, builder, array, *arguments[:2]), array.dtype
        )
        return context.get_dummy_value()

    return types.void(array, types.intp, Vector(array.dtype)), codegen


@intrinsic
def splat(typingctx: TypingContext, array: FloatArray, number: types.Type) -> Lowering | None:
    """Make a vector of the array's dtype with `number` in every lane."""

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        return broadcast(builder, context.cast(builder, arguments[1], number, array.dtype))

    return Vector(array.dtype)(array, number), codegen


@intrinsic
def total(typingctx: TypingContext, a: Vector) -> Lowering | None:
    """Return the sum of the lanes."""

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        return sum_lanes(builder, arguments[0], a.dtype)

    return a.dtype(a), codegen


def sum_lanes(builder: ir.IRBuilder, value: ir.Value, dtype: types.Float) -> ir.Value:
    """Halves added to halves, down to one number."""
    width = LANES
    while width > 1:
        width //= 2
        index = ir.VectorType(ir.IntType(32), width)
        low = builder.shuffle_vector(value, value, ir.Constant(index, list(range(width))))
        high = builder.shuffle_vector(
            value, value, ir.Constant(index, list(range(width, 2 * width)))
        )
        value = builder.fadd(low, high)
    return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


@intrinsic
def any_nonzero(typingctx: TypingContext, a: Vector) -> Lowering | None:
    """Tell whether any lane differs from zero."""

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        zero = ir.Constant(vector_ir(a.dtype), None)
        lanes = builder.bitcast(builder.fcmp_unordered("!=", arguments[0], zero), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", lanes, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(a), codegen


@intrinsic
def noinline(typingctx: TypingContext) -> Lowering | None:
    """Never inline the function that calls this: a copy at every call site would take long to
    compile."""

    def codegen(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen
