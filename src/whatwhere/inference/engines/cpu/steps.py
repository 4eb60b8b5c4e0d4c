"""Algorithm 1 for one image: the body of the loop in `inference.ista`, in two halves around the step size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whatwhere.inference.engines.cpu.convolution import convolve_down, convolve_up, scatter_down
from whatwhere.inference.engines.cpu.pooling import Layer, place, pool, step_pooling, unpool
from whatwhere.inference.engines.cpu.rows import Array, compiled, spliced
from whatwhere.inference.engines.cpu.simd import LANES, load, some_nonzero

# The settings that the kernels read, as one record.
SETTINGS = np.dtype(
    [
        ("lam", np.float64),
        ("alpha", np.float64),
        ("pooling_step", np.float64),
        ("gamma_min", np.float64),
        ("gamma_max", np.float64),
        ("power", np.int64),
        ("exact", np.bool_),
        ("momentum", np.bool_),
        ("nonnegative", np.bool_),
        ("line_search", np.bool_),  # measure ‖R g‖² too
        ("own_step", np.bool_),  # and step by it, each image for itself
    ]
)
Settings = Any  # one such record


@spliced
def descend(state: Array, filters: Array, below: Layer, layer: Layer, source: int, target: int) -> None:
    """A signal at p_k unpooled and convolved down to p_{k-1}."""
    if layer.unpooled:
        convolve_down(state, filters, below, layer, source, target)
    else:
        unpool(state, layer, source)
        convolve_down(state, filters, below, layer, layer.z, target)


@spliced
def reconstruct(state: Array, filters: Array, layers: Array, image: Array, nonzeros: int) -> float:
    """Every p̂_k from the top down, the residual e = R p - v at the image, and ‖e‖²."""
    for k in range(len(layers) - 1, 0, -1):
        below, layer = layers[k - 1], layers[k]
        scattered = nonzeros * layer.pool * layer.pool * (10 if layer.winograd else 2)
        if k == len(layers) - 1 and below.maps % LANES == 0 and scattered < below.rows * below.columns * layer.maps:
            scatter_down(state, filters, below, layer, below.features)
        else:
            descend(state, filters, below, layer, layer.features, below.features)
    bottom, squares = layers[0], 0.0
    for y in range(bottom.rows):
        hat, e = place(bottom, bottom.features, y, 0), place(bottom, bottom.error, y, 0)
        length = bottom.columns * bottom.maps
        for i in range(length):
            error = state[hat + i] - image[y * length + i]
            state[e + i] = error
            squares += error * error
    return squares


@spliced
def propagate(state: Array, filters: Array, layers: Array) -> float:
    """The residual up to g = Rᵀ e, leaving the error at every z_k; ‖g‖²."""
    for k in range(1, len(layers)):
        convolve_up(state, filters, layers[k - 1], layers[k])
        if not layers[k].unpooled:
            pool(state, layers[k])
    top = layers[len(layers) - 1]
    return sum_of_squares(state, top.error, top.rows * top.columns * top.maps)


@spliced
def gain(state: Array, filters: Array, layers: Array) -> float:
    """‖R g‖²."""
    for k in range(len(layers) - 1, 0, -1):
        below, layer = layers[k - 1], layers[k]
        source = layer.error if k == len(layers) - 1 else layer.line
        descend(state, filters, below, layer, source, below.line)
    bottom, squares = layers[0], 0.0
    for y in range(bottom.rows):
        squares += sum_of_squares(state, place(bottom, bottom.line, y, 0), bottom.columns * bottom.maps)
    return squares


@spliced
def copy(source: Array, begin: int, target: Array, at: int, length: int) -> None:
    """A slice to a slice; written as one, Numba would compile for seconds to word an error that cannot occur."""
    for i in range(length):
        target[at + i] = source[begin + i]


@compiled
def sum_of_squares(state: Array, at: int, length: int) -> float:
    squares = state.dtype.type(0)
    for i in range(at, at + length):
        squares += state[i] * state[i]
    return squares


@compiled
def shrink(p: float, beta: float, alpha: float, exact: bool) -> float:
    """`ops.sparsity.shrink` or `shrink_exact` of one number."""
    size = abs(p)
    if size == 0:
        return p
    if exact and alpha != 1:
        if size <= 1.5 * beta ** (2 / 3):
            return p * 0
        phi = math.acos(min(beta / 4 * (size / 3) ** -1.5, 1.0))
        return 2 / 3 * p * (1 + math.cos(2 * math.pi / 3 - 2 / 3 * phi))
    left = size - beta * alpha * size ** (alpha - 1)
    return math.copysign(left, p) if left > 0 else p * 0


@compiled
def penalise(state: Array, top: Layer, alpha: float) -> tuple[float, int]:
    """Σ|p|^α and the number of p ≠ 0."""
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
def descend_gradient(state: Array, p: Array, top: Layer, beta: float, settings: Settings) -> None:
    """p ← project(shrink(y - λ β g, β)), from the y and g in the state."""
    kind = state.dtype.type
    y, g, zero, tiny, signed = top.features, top.error, kind(0), kind(1e-30), not settings.nonnegative
    step, threshold, half = kind(settings.lam * beta), kind(beta), kind(beta / 2)
    plain = settings.alpha == 1 or (settings.alpha == 0.5 and not settings.exact)
    if not plain:
        for i in range(len(p)):
            moved = state[y + i] - step * state[g + i]
            p[i] = shrink(moved, beta, settings.alpha, settings.exact) if signed or moved > 0 else zero
    elif settings.alpha == 1:
        for i in range(len(p)):
            moved = state[y + i] - step * state[g + i]
            left = max((abs(moved) if signed else moved) - threshold, zero)
            p[i] = -left if signed and moved < 0 else left
    else:
        for i in range(len(p)):
            moved = state[y + i] - step * state[g + i]
            size = abs(moved) if signed else moved
            left = max(size - half / kind(math.sqrt(max(size, tiny))), zero)
            p[i] = -left if signed and moved < 0 else left


@spliced
def accelerate(state: Array, p: Array, p_old: Array, top: Layer, t: float) -> float:
    """FISTA's next point into the state, restarted where it points uphill; the next t (see `ista.accelerate`)."""
    y = top.features
    uphill = 0.0
    for i in range(len(p)):
        uphill += (state[y + i] - p[i]) * (p[i] - p_old[i])
    t = 1.0 if uphill > 0 else t
    t_next = (1 + math.sqrt(1 + 4 * t * t)) / 2
    ahead = state.dtype.type((t - 1) / t_next)
    for i in range(len(p)):
        state[y + i] = p[i] + ahead * (p[i] - p_old[i])
    return t_next


@spliced
def observe(state: Array, filters: Array, layers: Array, image: Array, settings: Settings, trace: Array) -> None:
    """Reconstruct, and write the objective's parts and the number of non-zeros into `trace`."""
    penalty, nonzeros = penalise(state, layers[len(layers) - 1], settings.alpha)
    trace[0] = settings.lam / 2 * reconstruct(state, filters, layers, image, nonzeros)
    trace[1], trace[2] = penalty, nonzeros


@spliced
def move(
    state: Array, p: Array, p_old: Array, layers: Array, settings: Settings, beta: float, t: float, first: bool
) -> float:
    """The step itself: pooling variables, from the same residual, then features; FISTA's next t."""
    top = layers[len(layers) - 1]
    for k in range(1, len(layers)):
        if layers[k].moves:
            step = settings.lam * settings.pooling_step
            step_pooling(state, layers[k], step, settings.gamma_min, settings.gamma_max, first)
    if settings.momentum:
        copy(p, 0, p_old, 0, len(p))
    descend_gradient(state, p, top, beta, settings)
    if settings.momentum:
        return accelerate(state, p, p_old, top, t)
    copy(p, 0, state, top.features, len(p))
    return t
