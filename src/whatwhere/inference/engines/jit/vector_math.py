"""Functions of vectors that several kernels use."""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.jit import Array, inline_jit
from whatwhere.inference.engines.jit.simd import absolute, add_exponent, fma, maximum, rsqrt, splat, where_positive

TINY = 2e-35  # `exponential` returns zero below this
SHIFTS = 1.5 * 2.0**23, 1.5 * 2.0**52  # in float32 and float64: an integer added to it ends up in the last bits


@inline_jit
def exponential(like: Array, a: Any) -> Any:
    """e^a of a vector with a ≤ 0: 2^n e^r with a series in the small r; exactly zero below TINY."""
    a = maximum(a, splat(like, -80.0))
    shift = splat(like, SHIFTS[1] if like.itemsize > 4 else SHIFTS[0])
    shifted = fma(a, splat(like, 1.4426950408889634), shift)
    r = fma(shifted - shift, splat(like, -0.6931471805599453), a)
    square = r * r
    e = cubic(like, r, square, 1 / 24, 1 / 120, 1 / 720, 1 / 5040)
    if like.itemsize > 4:
        rest = cubic(like, r, square, 1 / 40320, 1 / 362880, 1 / 3628800, 1 / 39916800)
        e = fma(rest, square * square, e)
    e = fma(e, square * square, cubic(like, r, square, 1.0, 1.0, 1 / 2, 1 / 6))
    return maximum(add_exponent(e, shifted) - TINY, splat(like, 0))


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
