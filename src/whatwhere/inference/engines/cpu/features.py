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
    reciprocal_root,
    smaller,
    some_nonzero,
    splat,
    store,
    total,
)


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
    state: Array, top: Layer, out: Array, at: int, lam: float, beta: float, alpha: float, exact: bool, signed: bool
) -> None:
    """out ← project(shrink(y - λ β g, β)), from the y and g in the state."""
    apart()
    y, g, length = top.features, top.error, top.rows * top.columns * top.maps
    step = lam * beta
    if alpha != 1 and (exact or alpha != 0.5):
        for i in range(length):
            moved = state[y + i] - step * state[g + i]
            out[at + i] = shrink_exactly(moved, beta, alpha, exact) if signed or moved > 0 else 0.0
        return
    zero, tiny, cut = splat(state, 0), splat(state, 1e-30), splat(state, beta)
    for i in range(0, length, LANES):
        moved = load(state, y + i) - load(state, g + i) * step
        if alpha != 1:
            cut = reciprocal_root(larger(moved, tiny)) * (beta / 2)
        shrunk = larger(moved - cut, zero)
        if signed:
            if alpha != 1:
                cut = reciprocal_root(larger(moved * -1, tiny)) * (beta / 2)
            shrunk = shrunk + smaller(moved + cut, zero)
        store(out, at + i, shrunk)


@compiled
def accelerate(state: Array, top: Layer, codes: Array, new: int, old: int, t: float) -> float:
    """FISTA's next point into the state, restarted where it points uphill; the next t (see `ista.accelerate`)."""
    apart()
    y, length = top.features, top.rows * top.columns * top.maps
    slope = splat(state, 0)
    for i in range(0, length, LANES):
        p = load(codes, new + i)
        slope = fma(load(state, y + i) - p, p - load(codes, old + i), slope)
    t = 1.0 if total(slope) > 0 else t
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
    penalty, nonzeros = 0.0, 0
    for first in range(top.features, top.features + top.rows * top.columns * top.maps, LANES):
        if some_nonzero(load(state, first)):
            for i in range(first, first + LANES):
                if state[i] != 0:
                    size = abs(state[i])
                    penalty += size if alpha == 1 else math.sqrt(size) if alpha == 0.5 else size**alpha
                    nonzeros += 1
    return penalty, nonzeros


@spliced
def copy(source: Array, begin: int, target: Array, at: int, length: int) -> None:
    """A slice to a slice; written as one, Numba would compile for seconds to word an error that cannot occur."""
    for i in range(length):
        target[at + i] = source[begin + i]
