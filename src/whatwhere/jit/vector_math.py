"""Functions of vectors that several kernels use."""

from __future__ import annotations

from typing import Any

from whatwhere.jit import Array, inline_jit
from whatwhere.jit.simd import absolute, exp2_integer, fma, maximum, rint, rsqrt, splat, where_positive

TINY = 2e-35  # `exponential` returns zero below this


@inline_jit
def exponential(like: Array, a: Any) -> Any:
    """e^a of a vector with a ≤ 0: 2^n e^r with a series in the small r; exactly zero below TINY."""
    a = maximum(a, splat(like, -80.0))
    n = rint(a * 1.4426950408889634)
    r = (a - n * 0.693145751953125) - n * 1.42860682030941723212e-6  # ln 2 in two parts, the first exact
    square = r * r
    e = cubic(like, r, square, 1 / 24, 1 / 120, 1 / 720, 1 / 5040)
    if like.itemsize > 4:
        rest = cubic(like, r, square, 1 / 40320, 1 / 362880, 1 / 3628800, 1 / 39916800)
        e = fma(rest, square * square, e)
    e = fma(e, square * square, cubic(like, r, square, 1.0, 1.0, 1 / 2, 1 / 6))
    return maximum(e * exp2_integer(n) - TINY, splat(like, 0))


@inline_jit
def cubic(like: Array, r: Any, square: Any, a: float, b: float, c: float, d: float) -> Any:
    """a + b r + c r² + d r³, as two halves that a processor computes at the same time."""
    return fma(fma(splat(like, d), r, splat(like, c)), square, fma(splat(like, b), r, splat(like, a)))


@inline_jit
def pair_weights(like: Array, mu: Any, gamma: Any) -> Any:
    """The weights of an axis of two elements: 1/√(1 + t²) and t/√(1 + t²), t = e^(-|γμ|/2)."""
    a = mu * gamma * 0.5
    t = exponential(like, absolute(a) * -1)
    more = rsqrt(fma(t, t, splat(like, 1)))
    less = t * more
    return where_positive(a, less, more), where_positive(a, more, less)
