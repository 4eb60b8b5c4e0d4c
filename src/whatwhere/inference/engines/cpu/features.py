"""The features of one image: the gradient and shrinkage step, FISTA's momentum, and the penalty."""

from __future__ import annotations

from whatwhere.inference.engines.cpu.records import Codes, Layer, Settings
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.simd import LANES, any_nonzero, load, noinline, splat, store, total
from whatwhere.inference.engines.jit.vector_math import fma, formulas, maximum, where

BLOCK = 64 * LANES


@jit
def update_features(state: Array, top: Layer, codes: Codes, settings: Settings, beta: float, threshold: float) -> float:
    """new ← project(shrink(y - λ β g, threshold)), from the y and g in the state; Σ (y - new)(new - old)."""
    noinline()
    y, g, length = top.features, top.error, top.rows * top.columns * top.maps
    step, alpha, nonnegative = settings.lam * beta, settings.alpha, settings.nonnegative
    exact = settings.exact and alpha != 1
    slope, cut = splat(state, 0), splat(state, threshold)
    for i in range(0, length, LANES):
        at, before = load(state, y + i), load(codes.memory, codes.old + i)
        moved = at - load(state, g + i) * step
        shrunk = formulas.shrink_exact(moved, cut) if exact else formulas.shrink(moved, cut, alpha)
        shrunk = maximum(shrunk, 0.0) if nonnegative else shrunk
        slope = fma(at - shrunk, shrunk - before, slope)
        store(codes.memory, codes.new + i, shrunk)
    slope_of_step: float = total(slope)
    return slope_of_step


@jit
def move_ahead(state: Array, top: Layer, codes: Codes, share: float) -> None:
    """Write the point ahead of the new features, by a share of their change, to the state."""
    noinline()
    for i in range(0, top.rows * top.columns * top.maps, LANES):
        p, p_old = load(codes.memory, codes.new + i), load(codes.memory, codes.old + i)
        store(state, top.features + i, formulas.ahead(p, p_old, share))


@jit
def penalty_and_nonzeros(state: Array, top: Layer, alpha: float) -> tuple[float, int]:
    """Σ|p|^α and the number of p ≠ 0."""
    noinline()
    penalty, nonzeros, end = 0.0, 0.0, top.features + top.rows * top.columns * top.maps
    for block in range(top.features, end, BLOCK):  # longer sums would lose digits in float32
        sizes, counts = splat(state, 0), splat(state, 0)
        for i in range(block, min(block + BLOCK, end), LANES):
            p = load(state, i)
            if any_nonzero(p):
                counts = counts + where(p != 0, 1.0, 0.0)
                sizes = sizes + formulas.powered(p, alpha)
        penalty += total(sizes)
        nonzeros += total(counts)
    return penalty, int(nonzeros)


@inline_jit
def copy(source: Array, begin: int, target: Array, at: int, length: int) -> None:
    """Copy a slice. As a slice assignment Numba would spend seconds compiling an error message that cannot occur."""
    for i in range(length):
        target[at + i] = source[begin + i]
