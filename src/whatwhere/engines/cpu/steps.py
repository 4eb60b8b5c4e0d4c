"""Algorithm 1 for one image: the body of the loop in `engines.reference.ista`, in two halves around
the step size."""

from whatwhere.engines.cpu.convolution import convolve_down, convolve_up, scatter_down
from whatwhere.engines.cpu.pooling import (
    Bounds,
    bound_pooling,
    element_offset,
    pool,
    unpool,
    update_pooling,
)
from whatwhere.engines.cpu.records import Codes, Layer, Network, Settings, Step, Target
from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.simd import LANES, any_nonzero, load, noinline, splat, store, total
from whatwhere.engines.jit.vector_math import fma, formulas, maximum, where

BLOCK = 64 * LANES  # features that are added up at a time: longer sums would lose digits in float32


@inline_jit
def unpool_and_convolve(
    state: Array, filters: Array, below: Layer, layer: Layer, source: int, target: int
) -> None:
    """Unpool a signal at p_k and convolve it down to p_{k-1}."""
    z = source if layer.unpooled else layer.z
    if not layer.unpooled:
        unpool(state, layer, source)
    convolve_down(state, filters, below, layer, z, target)


@inline_jit
def reconstruct(state: Array, network: Network, target: Target, nonzeros: int) -> float:
    """Compute every p̂_k from the top down and the residual e = M ⊙ (R p - v); store M ⊙ e and
    return ‖e‖²."""
    layers, filters = network
    image, mask = target
    for k in range(len(layers) - 1, 0, -1):
        below, layer = layers[k - 1], layers[k]
        if k == len(layers) - 1 and nonzeros < layer.sparse:
            scatter_down(state, filters, below, layer, below.features)
        else:
            unpool_and_convolve(state, filters, below, layer, layer.features, below.features)
    bottom, squares = layers[0], 0.0
    for y in range(bottom.rows):
        hat, e = (
            element_offset(bottom, bottom.features, y, 0),
            element_offset(bottom, bottom.error, y, 0),
        )
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
def propagate(state: Array, network: Network) -> None:
    """Propagate the residual up to g = Rᵀ (M ⊙ e); the error at every z_k stays in the state."""
    layers, filters = network
    for k in range(1, len(layers)):
        convolve_up(state, filters, layers[k - 1], layers[k])
        if not layers[k].unpooled:
            pool(state, layers[k])


@inline_jit
def line_search_norms(state: Array, network: Network, mask: Array) -> tuple[float, float]:
    """‖g‖² and ‖M ⊙ R g‖²."""
    layers, filters = network
    for k in range(len(layers) - 1, 0, -1):
        below, layer = layers[k - 1], layers[k]
        source = layer.error if k == len(layers) - 1 else layer.gain
        unpool_and_convolve(state, filters, below, layer, source, below.gain)
    bottom, squares = layers[0], 0.0
    if len(mask) > 0:
        apply_mask(state, bottom, bottom.gain, mask)
    for y in range(bottom.rows):
        squares += _sum_of_squares(
            state, element_offset(bottom, bottom.gain, y, 0), bottom.columns * bottom.maps
        )
    top = layers[len(layers) - 1]
    return _sum_of_squares(state, top.error, top.rows * top.columns * top.maps), squares


@jit
def _sum_of_squares(state: Array, at: int, length: int) -> float:
    squares: float = state.dtype.type(0)
    for i in range(at, at + length):
        squares += state[i] * state[i]
    return squares


@jit
def apply_mask(state: Array, bottom: Layer, at: int, mask: Array) -> float:
    """Multiply the signal at the image that starts at `at` by the mask [H W C], in place; return
    its sum of squares."""
    noinline()
    squares, length = 0.0, bottom.columns * bottom.maps
    for y in range(bottom.rows):
        first = element_offset(bottom, at, y, 0)
        for i in range(length):
            weighted = mask[y * length + i] * state[first + i]
            state[first + i] = weighted
            squares += weighted * weighted
    return squares


@jit
def update_features(
    state: Array, top: Layer, codes: Codes, settings: Settings, beta: float, threshold: float
) -> float:
    """new ← project(shrink(y - λ β g, threshold)), from the y and g in the state; Σ (y - new)(new
    - old)."""
    noinline()
    y, g, length = top.features, top.error, top.rows * top.columns * top.maps
    step, nonnegative = settings.lam * beta, settings.nonnegative
    penalty = (settings.penalty_kind, settings.penalty_parameter)
    slope, cut = splat(state, 0), splat(state, threshold)
    for i in range(0, length, LANES):
        at, before = load(state, y + i), load(codes.memory, codes.old + i)
        moved = at - load(state, g + i) * step
        shrunk = formulas.shrink(moved, cut, penalty)
        shrunk = maximum(shrunk, 0.0) if nonnegative else shrunk
        slope = fma(at - shrunk, shrunk - before, slope)
        store(codes.memory, codes.new + i, shrunk)
    return total(slope)


@jit
def _move_ahead(state: Array, top: Layer, codes: Codes, share: float) -> None:
    """Write the point ahead of the new features, by a share of their change, to the state."""
    noinline()
    for i in range(0, top.rows * top.columns * top.maps, LANES):
        p, p_old = load(codes.memory, codes.new + i), load(codes.memory, codes.old + i)
        store(state, top.features + i, formulas.ahead(p, p_old, share))


@jit
def penalty_and_nonzeros(state: Array, top: Layer, penalty: tuple[int, float]) -> tuple[float, int]:
    """Return the cost of all features, by the `code` of a penalty, and the number of p ≠ 0."""
    noinline()
    cost, nonzeros, end = 0.0, 0.0, top.features + top.rows * top.columns * top.maps
    for block in range(top.features, end, BLOCK):
        sizes, counts = splat(state, 0), splat(state, 0)
        for i in range(block, min(block + BLOCK, end), LANES):
            p = load(state, i)
            if any_nonzero(p):
                counts = counts + where(p != 0, 1.0, 0.0)
                sizes = sizes + formulas.cost(p, penalty)
        cost += total(sizes)
        nonzeros += total(counts)
    return cost, int(nonzeros)


@inline_jit
def record_objective(
    state: Array, network: Network, target: Target, settings: Settings, trace: Array
) -> None:
    """Reconstruct, and write the objective's parts and the number of non-zeros into `trace`."""
    top = network.layers[len(network.layers) - 1]
    code = (settings.penalty_kind, settings.penalty_parameter)
    penalty, nonzeros = penalty_and_nonzeros(state, top, code)
    trace[0] = settings.lam / 2 * reconstruct(state, network, target, nonzeros)
    trace[1] = penalty
    trace[2] = nonzeros


@inline_jit
def _move_pooling(state: Array, layers: Array, settings: Settings, step: Step) -> None:
    """θ ← bound(θ - λ β_U ∇θ) in the layers that move."""
    first = step.number == 1
    for k in range(1, len(layers)):
        if not layers[k].updates_pooling:
            continue
        if layers[k].unpooled:  # regions of one element have no gradient
            if first:
                bound_pooling(state, layers[k], settings.gamma_min, settings.gamma_max)
            continue
        if first and settings.from_zero:
            continue  # p̂ = 0: nothing moves, and the fit is within the bounds
        rate = settings.pooling_step
        if len(step.schedule) > 0:
            rate = step.schedule[step.number - 1, 1 + k] * step.rate
        bounds = Bounds(settings.gamma_min, settings.gamma_max)
        update_pooling(state, layers[k], settings.lam * rate, bounds, first)


@inline_jit
def update_latents(
    state: Array, codes: Array, layers: Array, settings: Settings, step: Step, t: float
) -> float:
    """Update the pooling variables and then the features from one residual; return FISTA's next t.

    With momentum p is stored as well as y: the new and the old p alternate between the two halves
    of `codes`.
    """
    top = layers[len(layers) - 1]
    scheduled = len(step.schedule) > 0
    _move_pooling(state, layers, settings, step)
    threshold = step.schedule[step.number - 1, 0] if scheduled else step.size
    if not settings.momentum:
        in_place = Codes(state, top.features, top.features)
        update_features(state, top, in_place, settings, step.size, threshold)
        return t
    half = len(codes) // 2
    both = Codes(codes, step.number % 2 * half, (step.number - 1) % 2 * half)
    slope = update_features(state, top, both, settings, step.size, threshold)
    if scheduled:
        _move_ahead(state, top, both, step.schedule[step.number - 1, 1])
        return t
    t, share = formulas.next_momentum(t, slope)
    _move_ahead(state, top, both, share)
    return t
