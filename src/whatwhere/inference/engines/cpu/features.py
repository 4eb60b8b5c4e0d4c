"""The features of one image: the gradient and shrinkage step, FISTA's momentum, and the penalty."""

from __future__ import annotations

import math

from whatwhere.inference.engines.cpu.compiling import Array, compiled, spliced
from whatwhere.inference.engines.cpu.pooling import Layer
from whatwhere.inference.engines.cpu.simd import (
    LANES,
    apart,
    fma,
    larger,
    load,
    magnitude,
    reciprocal_root,
    smaller,
    some_nonzero,
    splat,
    store,
    total,
    where_positive,
)

BLOCK = 64 * LANES


@compiled
def shrink_exactly(p: float, beta: float, alpha: float, exact: bool) -> float:
    """`ops.sparsity.shrink` or `shrink_exact` of one number, for the settings that are rare."""
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


@compiled
def step_features(
    state: Array, top: Layer, out: Array, new: int, old: int, lam: float, beta: float, alpha: float, exact: bool,
    signed: bool,
) -> float:  # fmt: skip
    """new ← project(shrink(y - λ β g, β)), from the y and g in the state; Σ (y - new)(new - old).

    `new` and `old` begin in `out`. Where there is no momentum all three are y, and the sum means nothing.
    """
    apart()
    y, g, length = top.features, top.error, top.rows * top.columns * top.maps
    step = lam * beta
    if alpha != 1 and (exact or alpha != 0.5):
        uphill = 0.0
        for i in range(length):
            at = state[y + i]
            moved = at - step * state[g + i]
            shrunk = shrink_exactly(moved, beta, alpha, exact) if signed or moved > 0 else 0.0
            uphill += (at - shrunk) * (shrunk - out[old + i])
            out[new + i] = shrunk
        return uphill
    zero, tiny, cut = splat(state, 0), splat(state, 1e-30), splat(state, beta)
    slope = zero
    for i in range(0, length, LANES):
        at, before = load(state, y + i), load(out, old + i)
        moved = at - load(state, g + i) * step
        if alpha != 1:
            cut = reciprocal_root(larger(moved, tiny)) * (beta / 2)
        shrunk = larger(moved - cut, zero)
        if signed:
            if alpha != 1:
                cut = reciprocal_root(larger(moved * -1, tiny)) * (beta / 2)
            shrunk = shrunk + smaller(moved + cut, zero)
        slope = fma(at - shrunk, shrunk - before, slope)
        store(out, new + i, shrunk)
    return total(slope)


@compiled
def accelerate(state: Array, top: Layer, codes: Array, new: int, old: int, slope: float, t: float) -> float:
    """FISTA's next point into the state, restarted where the last step was uphill; the next t (`ista.accelerate`)."""
    apart()
    y, length = top.features, top.rows * top.columns * top.maps
    t = 1.0 if slope > 0 else t
    t_next = (1 + math.sqrt(1 + 4 * t * t)) / 2
    ahead = splat(state, (t - 1) / t_next)
    for i in range(0, length, LANES):
        p = load(codes, new + i)
        store(state, y + i, fma(ahead, p - load(codes, old + i), p))
    return t_next


@compiled
def penalise(state: Array, top: Layer, alpha: float) -> tuple[float, int]:
    """Σ|p|^α and the number of p ≠ 0."""
    apart()
    zero, one, tiny = splat(state, 0), splat(state, 1), splat(state, 1e-30)
    penalty, nonzeros, end = 0.0, 0.0, top.features + top.rows * top.columns * top.maps
    for block in range(top.features, end, BLOCK):  # sums of more numbers would lose digits in float32
        sizes, counts = zero, zero
        for i in range(block, min(block + BLOCK, end), LANES):
            p = load(state, i)
            if not some_nonzero(p):
                continue
            size = magnitude(p)
            counts = counts + where_positive(size, one, zero)
            if alpha == 1:
                sizes = sizes + size
            elif alpha == 0.5:
                sizes = fma(size, reciprocal_root(larger(size, tiny)), sizes)
            else:
                for j in range(i, i + LANES):
                    penalty += abs(state[j]) ** alpha
        penalty += total(sizes)
        nonzeros += total(counts)
    return penalty, int(nonzeros)


@spliced
def copy(source: Array, begin: int, target: Array, at: int, length: int) -> None:
    """A slice to a slice; written as one, Numba would compile for seconds to word an error that cannot occur."""
    for i in range(length):
        target[at + i] = source[begin + i]
