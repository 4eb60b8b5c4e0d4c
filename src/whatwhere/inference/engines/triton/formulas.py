"""The formulas of `ops.formulas` compiled by Triton, over its own functions in place of torch's."""

from typing import Any

import triton
import triton.language as tl

from whatwhere.ops.formulas import compile_formulas

# Functions of our own around Triton's, since its interpreter replaces those in `tl` for the time of a launch.


@triton.jit
def absolute(x):
    return tl.abs(x)


@triton.jit
def clamp(x, low, high):
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit
def exp(x):
    return tl.exp(x)


@triton.jit
def maximum(x, y):
    return tl.maximum(x, y)


@triton.jit
def power(x, exponent):
    return tl.exp2(exponent * tl.log2(x))


@triton.jit
def rsqrt(x):
    return tl.rsqrt(x)


@triton.jit
def sqrt(x):
    return tl.sqrt(x)


@triton.jit
def where(condition, yes, no):
    return tl.where(condition, yes, no)


formulas: Any = compile_formulas(
    triton.jit,
    tl=tl, abs=absolute, clamp=clamp, exp=exp, maximum=maximum, pow=power, rsqrt=rsqrt, sqrt=sqrt, where=where,
)  # fmt: skip
