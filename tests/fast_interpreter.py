"""Triton's interpreter faster, with the same numbers.

Imported with TRITON_INTERPRET=1 before a kernel runs, and never by a process that compiles: there
a number belongs to the kernel that it was made for. It replaces the functions of its language
once, not at every call, and remembers the types of arrays and of blocks, the shapes of tensors and
whole numbers. Blocks of one shape need no broadcasting. It does not compute every sum of indices a
second time in int64 to see whether the first one overflowed: arrays of a few thousand values have
no such indices.
"""

import dataclasses
import functools
import os
from typing import Any

from triton.language import core, semantic
from triton.runtime import interpreter

if os.environ.get("TRITON_INTERPRET") != "1":
    raise ImportError("fast_interpreter needs TRITON_INTERPRET=1, set before triton is imported")

if hasattr(interpreter, "_LangPatchScope"):
    interpreter._LangPatchScope.restore = lambda scope: None
    interpreter._patch_lang = functools.cache(interpreter._patch_lang)

options = getattr(interpreter.interpreter_builder, "options", None)
if hasattr(options, "sanitize_overflow"):
    without_check = dataclasses.replace(options, sanitize_overflow=False)
    interpreter.interpreter_builder.options = without_check

look_up_array_type = interpreter._get_np_dtype
array_types: dict[str, Any] = {}


def array_type(triton_type: Any) -> Any:
    scalar = triton_type.scalar  # a block is an array of its scalars
    if scalar.name not in array_types:
        array_types[scalar.name] = look_up_array_type(scalar)
    return array_types[scalar.name]


make_block_type = core.block_type.__init__
block_types: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}


def block_type(self: Any, element_ty: Any, shape: Any) -> None:
    sizes = [getattr(size, "value", size) for size in shape]
    key = element_ty.name, tuple(sizes)
    if key not in block_types:
        make_block_type(self, element_ty, sizes)
        block_types[key] = dict(self.__dict__)
    self.__dict__.update(block_types[key])
    self.element_ty = element_ty


make_tensor = core.tensor.__init__
tensor_shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}


def tensor(self: Any, handle: Any, type: Any) -> None:
    sizes = tuple(type.shape) if type.is_block() else ()
    if sizes not in tensor_shapes:
        make_tensor(self, handle, type)
        tensor_shapes[sizes] = self.shape, self.numel
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = tensor_shapes[sizes]


broadcast_two = semantic.TritonSemantic.broadcast_impl_value
scalar_constant = semantic.TritonSemantic.scalar_constant
whole_numbers: dict[tuple[int, str], Any] = {}


def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    if lhs.shape is rhs.shape:  # every shape is remembered once
        return lhs, rhs
    return broadcast_two(self, lhs, rhs)


def constant(self: Any, value: Any, dtype: Any) -> Any:
    if type(value) is not int or dtype is None:
        return scalar_constant(self, value, dtype)
    key = value, dtype.name
    if key not in whole_numbers:
        whole_numbers[key] = scalar_constant(self, value, dtype)
    return whole_numbers[key]


interpreter._get_np_dtype = array_type
core.block_type.__init__ = block_type
core.tensor.__init__ = tensor
semantic.TritonSemantic.broadcast_impl_value = broadcast
semantic.TritonSemantic.scalar_constant = constant
