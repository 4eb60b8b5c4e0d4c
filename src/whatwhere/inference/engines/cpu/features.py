"""The features of one image: the gradient and shrinkage step, FISTA's momentum, and the penalty."""

from __future__ import annotations

import math

from whatwhere.inference.engines.cpu.pooling import Layer
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import (
    LANES,
    absolute,
    any_nonzero,
    fma,
    load,
    maximum,
    minimum,
    noinline,
    rsqrt,
    splat,
    store,
    total,
    where_positive,
)

BLOCK = 64 * LANES


@jit
def shrink_one(p: float, beta: float, alpha: float, exact: bool) -> float:
    """`ops.sparsity.shrink` or `shrink_exact` of one number, for rare settings."""
    size = abs(p)
    if size == 0:
        return p
    if exact:
        if size <= 1.5 * beta ** (2 / 3):
            return p * 0
        phi = math.acos(min(beta / 4 * (size / 3) ** -1.5, 1.0))
        return 2 / 3 * p * (1 + math.cos(2 * math.pi / 3 - 2 / 3 * phi))
    left = size - beta * alpha * size ** (alpha - 1)
    return math.copysign(left, p) if left > 0 else p * 0


@jit
def update_features(
    state: Array, top: Layer, out: Array, new: int, old: int, lam: float, beta: float, threshold: float, alpha: float,
    exact: bool, signed: bool,
) -> float:  # fmt: skip
    """new ← project(shrink(y - λ β g, threshold)), from the y and g in the state; Σ (y - new)(new - old).

    `new` and `old` are offsets in `out`. Without momentum all three are y, and the sum has no meaning.
    """
    noinline()
    y, g, length = top.features, top.error, top.rows * top.columns * top.maps
    step = lam * beta
    if alpha != 1 and (exact or alpha != 0.5):
        uphill = 0.0
        for i in range(length):
            at = state[y + i]
            moved = at - step * state[g + i]
            shrunk = shrink_one(moved, threshold, alpha, exact) if signed or moved > 0 else 0.0
            uphill += (at - shrunk) * (shrunk - out[old + i])
            out[new + i] = shrunk
        return uphill
    zero, tiny, cut = splat(state, 0), splat(state, 1e-30), splat(state, threshold)
    slope = zero
    for i in range(0, length, LANES):
        at, before = load(state, y + i), load(out, old + i)
        moved = at - load(state, g + i) * step
        if alpha != 1:
            cut = rsqrt(maximum(moved, tiny)) * (threshold / 2)
        shrunk = maximum(moved - cut, zero)
        if signed:
            if alpha != 1:
                cut = rsqrt(maximum(moved * -1, tiny)) * (threshold / 2)
            shrunk = shrunk + minimum(moved + cut, zero)
        slope = fma(at - shrunk, shrunk - before, slope)
        store(out, new + i, shrunk)
    slope_of_step: float = total(slope)
    return slope_of_step


@jit
def accelerate(state: Array, top: Layer, codes: Array, new: int, old: int, slope: float, t: float) -> float:
    """Write FISTA's next point to the state, restarted if the last step increased the objective; return the next t."""
    t = 1.0 if slope > 0 else t
    t_next = (1 + math.sqrt(1 + 4 * t * t)) / 2
    look_ahead(state, top, codes, new, old, (t - 1) / t_next)
    return t_next


@jit
def look_ahead(state: Array, top: Layer, codes: Array, new: int, old: int, share: float) -> None:
    """Write the point ahead of the new features, by a share of their change, to the state."""
    noinline()
    y, length, ahead = top.features, top.rows * top.columns * top.maps, splat(state, share)
    for i in range(0, length, LANES):
        p = load(codes, new + i)
        store(state, y + i, fma(ahead, p - load(codes, old + i), p))


@jit
def penalty_and_nonzeros(state: Array, top: Layer, alpha: float) -> tuple[float, int]:
    """Σ|p|^α and the number of p ≠ 0."""
    noinline()
    zero, one, tiny = splat(state, 0), splat(state, 1), splat(state, 1e-30)
    penalty, nonzeros, end = 0.0, 0.0, top.features + top.rows * top.columns * top.maps
    for block in range(top.features, end, BLOCK):  # longer sums would lose digits in float32
        sizes, counts = zero, zero
        for i in range(block, min(block + BLOCK, end), LANES):
            p = load(state, i)
            if not any_nonzero(p):
                continue
            size = absolute(p)
            counts = counts + where_positive(size, one, zero)
            if alpha == 1:
                sizes = sizes + size
            elif alpha == 0.5:
                sizes = fma(size, rsqrt(maximum(size, tiny)), sizes)
            else:
                for j in range(i, i + LANES):
                    penalty += abs(state[j]) ** alpha
        penalty += total(sizes)
        nonzeros += total(counts)
    return penalty, int(nonzeros)


@inline_jit
def copy(source: Array, begin: int, target: Array, at: int, length: int) -> None:
    """Copy a slice. As a slice assignment Numba would spend seconds compiling an error message that cannot occur."""
    for i in range(length):
        target[at + i] = source[begin + i]
