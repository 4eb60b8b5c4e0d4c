"""Algorithm 1 for one image: the body of the loop in `inference.ista`, in two halves around the step size."""

from __future__ import annotations

from typing import Any

import numpy as np

from whatwhere.inference.engines.cpu.convolution import convolve_down, convolve_up, scatter_down
from whatwhere.inference.engines.cpu.features import accelerate, look_ahead, penalty_and_nonzeros, update_features
from whatwhere.inference.engines.cpu.mask import apply_mask
from whatwhere.inference.engines.cpu.pooling import Layer, bound_pooling, element_offset, pool, unpool
from whatwhere.inference.engines.cpu.pooling_step import update_pooling
from whatwhere.inference.engines.jit import Array, inline_jit, jit

# The settings that the kernels read, as one record.
SETTINGS = np.dtype(
    [
        ("lam", np.float64),
        ("alpha", np.float64),
        ("pooling_step", np.float64),
        ("gamma_min", np.float64),
        ("gamma_max", np.float64),
        ("moment_power", np.int64),
        ("exact", np.bool_),
        ("momentum", np.bool_),
        ("nonnegative", np.bool_),
        ("line_search", np.bool_),  # measure ‖M ⊙ R g‖² too
        ("own_step", np.bool_),  # and use it for the step size of the image
        ("search_every", np.int64),  # of how many steps one is searched for; the others keep its β, or
        ("secant", np.bool_),  # take the secant
        ("from_zero", np.bool_),  # no latents are known: the fit of the start is the first pass up, too
        ("fast_fit", np.bool_),  # by the fastest convolution
    ]
)
Settings = Any  # one such record


@inline_jit
def unpool_and_convolve(state: Array, filters: Array, below: Layer, layer: Layer, source: int, target: int) -> None:
    """Unpool a signal at p_k and convolve it down to p_{k-1}."""
    z = source if layer.unpooled else layer.z
    if not layer.unpooled:
        unpool(state, layer, source)
    convolve_down(state, filters, below, layer, z, target)


@inline_jit
def reconstruct(state: Array, filters: Array, layers: Array, image: Array, mask: Array, nonzeros: int) -> float:
    """Compute every p̂_k from the top down and the residual e = M ⊙ (R p - v); store M ⊙ e and return ‖e‖²."""
    for k in range(len(layers) - 1, 0, -1):
        below, layer = layers[k - 1], layers[k]
        if k == len(layers) - 1 and nonzeros < layer.sparse:
            scatter_down(state, filters, below, layer, below.features)
        else:
            unpool_and_convolve(state, filters, below, layer, layer.features, below.features)
    bottom, squares = layers[0], 0.0
    for y in range(bottom.rows):
        hat, e = element_offset(bottom, bottom.features, y, 0), element_offset(bottom, bottom.error, y, 0)
        length = bottom.columns * bottom.maps
        for i in range(length):
            error = state[hat + i] - image[y * length + i]
            state[e + i] = error
            squares += error * error
    if len(mask) > 0:
        squares = apply_mask(state, bottom, bottom.error, mask)
        apply_mask(state, bottom, bottom.error, mask)
    return squares


@inline_jit
def propagate(state: Array, filters: Array, layers: Array) -> None:
    """Propagate the residual up to g = Rᵀ (M ⊙ e); the error at every z_k stays in the state."""
    for k in range(1, len(layers)):
        convolve_up(state, filters, layers[k - 1], layers[k])
        if not layers[k].unpooled:
            pool(state, layers[k])


@inline_jit
def line_search_norms(state: Array, filters: Array, layers: Array, mask: Array) -> tuple[float, float]:
    """‖g‖² and ‖M ⊙ R g‖²."""
    for k in range(len(layers) - 1, 0, -1):
        below, layer = layers[k - 1], layers[k]
        source = layer.error if k == len(layers) - 1 else layer.gain
        unpool_and_convolve(state, filters, below, layer, source, below.gain)
    bottom, squares = layers[0], 0.0
    if len(mask) > 0:
        apply_mask(state, bottom, bottom.gain, mask)
    for y in range(bottom.rows):
        squares += sum_of_squares(state, element_offset(bottom, bottom.gain, y, 0), bottom.columns * bottom.maps)
    top = layers[len(layers) - 1]
    return sum_of_squares(state, top.error, top.rows * top.columns * top.maps), squares


@inline_jit
def secant_norms(state: Array, code: Array, layers: Array, mask: Array) -> tuple[float, float]:
    """‖p - p_old‖² and ‖M ⊙ (R p - R_old p_old)‖². The old ones, in `code` and at the bottom's `gain`, are replaced."""
    top, bottom = layers[len(layers) - 1], layers[0]
    changed = replace_old(state, top.features, code, 0, top.rows * top.columns * top.maps)
    squares, length = 0.0, bottom.columns * bottom.maps
    for y in range(bottom.rows):
        at, old = element_offset(bottom, bottom.features, y, 0), element_offset(bottom, bottom.gain, y, 0)
        if len(mask) == 0:
            squares += replace_old(state, at, state, old, length)
            continue
        for i in range(length):
            change = mask[y * length + i] * (state[at + i] - state[old + i])
            state[old + i] = state[at + i]
            squares += change * change
    return changed, squares


@jit
def replace_old(state: Array, at: int, old: Array, old_at: int, length: int) -> float:
    """Σ (new - old)², and old ← new."""
    squares: float = state.dtype.type(0)
    for i in range(length):
        change = state[at + i] - old[old_at + i]
        old[old_at + i] = state[at + i]
        squares += change * change
    return squares


@jit
def sum_of_squares(state: Array, at: int, length: int) -> float:
    squares: float = state.dtype.type(0)
    for i in range(at, at + length):
        squares += state[i] * state[i]
    return squares


@inline_jit
def record_objective(
    state: Array, filters: Array, layers: Array, image: Array, mask: Array, settings: Settings, trace: Array
) -> None:
    """Reconstruct, and write the objective's parts and the number of non-zeros into `trace`."""
    penalty, nonzeros = penalty_and_nonzeros(state, layers[len(layers) - 1], settings.alpha)
    trace[0] = settings.lam / 2 * reconstruct(state, filters, layers, image, mask, nonzeros)
    trace[1], trace[2] = penalty, nonzeros


@inline_jit
def update_latents(
    state: Array, codes: Array, layers: Array, settings: Settings, schedule: Array, rate: float, beta: float, t: float,
    number: int,
) -> float:  # fmt: skip
    """Step `number`: update the pooling variables and then the features from one residual; return FISTA's next t.

    With momentum p is stored as well as y: the new and the old p alternate between the two halves of `codes`.
    A row of `schedule` [T or 0, 2 + layers] has the threshold, the momentum and β_U of every layer of a step; `rate` is
    what its β_U are multiplied by.
    """
    top, scheduled = layers[len(layers) - 1], len(schedule) > 0
    for k in range(1, len(layers)):
        if layers[k].updates_pooling:
            if layers[k].unpooled:
                if number == 1:
                    bound_pooling(state, layers[k], settings.gamma_min, settings.gamma_max)
                continue
            if number == 1 and settings.from_zero:
                continue  # p̂ = 0: nothing moves, and the fit is within the bounds
            step = settings.lam * (schedule[number - 1, 1 + k] * rate if scheduled else settings.pooling_step)
            update_pooling(state, layers[k], step, settings.gamma_min, settings.gamma_max, number == 1)
    threshold = schedule[number - 1, 0] if scheduled else beta
    lam, alpha, exact, signed = settings.lam, settings.alpha, settings.exact, not settings.nonnegative
    if not settings.momentum:
        update_features(state, top, state, top.features, top.features, lam, beta, threshold, alpha, exact, signed)
        return t
    half = len(codes) // 2
    new, old = number % 2 * half, (number - 1) % 2 * half
    slope = update_features(state, top, codes, new, old, lam, beta, threshold, alpha, exact, signed)
    if scheduled:
        look_ahead(state, top, codes, new, old, schedule[number - 1, 1])
        return t
    return accelerate(state, top, codes, new, old, slope, t)
