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
    e = fma(splat(like, 1 / 3628800), r, splat(like, 1 / 362880))
    e = fma(e, r, splat(like, 1 / 40320))
    e = fma(e, r, splat(like, 1 / 5040))
    e = fma(e, r, splat(like, 1 / 720))
    e = fma(e, r, splat(like, 1 / 120))
    e = fma(e, r, splat(like, 1 / 24))
    e = fma(e, r, splat(like, 1 / 6))
    e = fma(e, r, splat(like, 1 / 2))
    e = fma(e, r, splat(like, 1.0))
    e = fma(e, r, splat(like, 1.0))
    return maximum(e * exp2_integer(n) - TINY, splat(like, 0))


@inline_jit
def pair_weights(like: Array, mu: Any, gamma: Any) -> Any:
    """The weights of an axis of two elements: 1/√(1 + t²) and t/√(1 + t²), t = e^(-|γμ|/2)."""
    a = mu * gamma * 0.5
    t = exponential(like, absolute(a) * -1)
    more = rsqrt(fma(t, t, splat(like, 1)))
    less = t * more
    return where_positive(a, less, more), where_positive(a, more, less)
