"""Pooling, unpooling, the weights and the step of the pooling variables of one image, LANES maps
at a time."""

from typing import NamedTuple

from whatwhere.engines.cpu.records import Layer
from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.region import (
    Axis,
    axis_mean,
    axis_moments,
    axis_weights,
    pool_plane,
    spread,
)
from whatwhere.engines.jit.simd import LANES, Lanes, Pair, any_nonzero, load, noinline, splat, store
from whatwhere.engines.jit.vector_math import fma, formulas


@jit
def element_offset(layer: Layer, start: int, row: int, column: int) -> int:
    """Return the offset of the maps of one element of p_k, in a signal that begins at `start`."""
    pitch: int = layer.columns + 2 * layer.border_x
    return start + ((row + layer.border_y) * pitch + column + layer.border_x) * layer.maps


@jit
def region_offset(layer: Layer, start: int, row: int, column: int) -> int:
    """Return the offset of the first element of a region, in an unpooled map that begins at
    `start`."""
    return start + row * layer.region_down + column * layer.region_right


@jit
def weights_offset(layer: Layer, row: int, column: int) -> int:
    """Return the offset of the weights of a region: along rows, then along columns."""
    return layer.weights + (row * layer.columns + column) * layer.region_weights


@inline_jit
def axes_of(layer: Layer) -> tuple[Axis, Axis]:
    """Rows and columns of a layer's regions."""
    s, B = layer.pool_y, layer.maps
    return Axis(s, layer.z_columns * B, 0, B), Axis(layer.pool_x, B, s * B, B)


@jit
def unpool(state: Array, layer: Layer, source: int) -> None:
    """z = w_y w_x p everywhere; summed where regions overlap."""
    noinline()
    B = layer.maps
    axes = axes_of(layer)
    overlap = layer.stride_y < layer.pool_y or layer.stride_x < layer.pool_x
    # regions that overlap add to what is there; without features they have nothing to add
    if overlap:
        for i in range(layer.z, layer.z + layer.z_rows * layer.z_columns * B, LANES):
            store(state, i, splat(state, 0))
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = element_offset(layer, source, row, column)
            w_at = weights_offset(layer, row, column)
            z_at = region_offset(layer, layer.z, row, column)
            for b in range(0, B, LANES):
                p = load(state, p_at + b)
                if overlap and not any_nonzero(p):
                    continue
                spread(state, z_at + b, w_at + b, p, axes, overlap)


@jit
def pool(state: Array, layer: Layer) -> None:
    """Pool the error at z_k to the error at p_k:  Σ w_y w_x error."""
    noinline()
    y, x = axes_of(layer)
    for row in range(layer.rows):
        for column in range(layer.columns):
            e_at = element_offset(layer, layer.error, row, column)
            w_at = weights_offset(layer, row, column)
            z_at = region_offset(layer, layer.z_error, row, column)
            for b in range(0, layer.maps, LANES):
                store(state, e_at + b, pool_plane(state, z_at + b, w_at + b, y, x))


@inline_jit
def _store_pair_weights(state: Array, w: int, B: int, y: Pair, x: Pair) -> None:
    """Store the weights of LANES regions of 2×2 with θ = (μ, γ) along rows and columns, stored
    after both are computed: these then run in parallel."""
    y0, y1 = formulas.pair_weights(y[0], y[1])
    x0, x1 = formulas.pair_weights(x[0], x[1])
    store(state, w, y0)
    store(state, w + B, y1)
    store(state, w + 2 * B, x0)
    store(state, w + 3 * B, x1)


@inline_jit
def _elements_inside(layer: Layer, row: int, column: int) -> tuple[int, int]:
    """Return how many elements of a region lie in the map, along rows and columns."""
    down = layer.height - row * layer.stride_y
    right = layer.width - column * layer.stride_x
    return min(layer.pool_y, down), min(layer.pool_x, right)


@jit
def compute_weights(state: Array, layer: Layer) -> None:
    """Compute the weights of every region from its pooling variables."""
    noinline()
    B = layer.maps
    axes = axes_of(layer)
    pairs = layer.pool_y == 2 and layer.pool_x == 2
    for row in range(layer.rows):
        for column in range(layer.columns):
            w_at = weights_offset(layer, row, column)
            inside = _elements_inside(layer, row, column)
            for b in range(0, B, LANES):
                theta = (row * layer.columns + column) * 2 * B + b
                mu = layer.mu + theta
                gamma = layer.gamma + theta
                y = load(state, mu), load(state, gamma)
                x = load(state, mu + B), load(state, gamma + B)
                # an axis of two elements is one sigmoid; at the border one of them may be missing
                if pairs and inside[0] == 2 and inside[1] == 2:
                    _store_pair_weights(state, w_at + b, B, y, x)
                else:
                    axis_weights(state, w_at + b, axes[0], y, inside[0], 0)
                    axis_weights(state, w_at + b, axes[1], x, inside[1], 0)


@jit
def bound_pooling(state: Array, layer: Layer, gamma_min: float, gamma_max: float) -> None:
    """Make the whole update of regions of one element, whose gradients are zero."""
    noinline()
    for i in range(layer.rows * layer.columns * 2 * layer.maps):
        state[layer.mu + i] = 0
        state[layer.gamma + i] = min(max(state[layer.gamma + i], gamma_min), gamma_max)


class Bounds(NamedTuple):
    """Bounds of γ."""

    gamma_min: float
    gamma_max: float


class Places(NamedTuple):
    """Where μ, γ and the weights of LANES regions begin, and their elements."""

    mu: int
    gamma: int
    w: int
    z: int


class Movement(NamedTuple):
    """What moves one axis of LANES regions.

    Parameters
    ----------
    number
        0 for rows, 1 for columns
    inside
        how many of the axis' elements lie in the map
    gradient
        ∇θ without the factor p̂
    """

    number: int
    axis: Axis
    inside: int
    gradient: Pair


@jit
def update_pooling(
    state: Array, layer: Layer, step: float, bounds: Bounds, everywhere: bool
) -> None:
    """θ ← bound(θ - step ∇θ) and new weights where p̂ ≠ 0; elsewhere the gradient is zero.

    `everywhere` is for the first step: variables that the caller gave may lie outside their bounds.
    """
    noinline()
    B = layer.maps
    axes = axes_of(layer)
    pairs = layer.pool_y == 2 and layer.pool_x == 2
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = element_offset(layer, layer.features, row, column)
            w_at = weights_offset(layer, row, column)
            z_at = region_offset(layer, layer.z_error, row, column)
            inside = _elements_inside(layer, row, column)
            theta = (row * layer.columns + column) * 2 * B
            for b in range(0, B, LANES):
                # most features are 0, and so are the gradients of their regions
                p = load(state, p_at + b)
                if not (everywhere or any_nonzero(p)):
                    continue
                at = Places(layer.mu + theta + b, layer.gamma + theta + b, w_at + b, z_at + b)
                if pairs and inside[0] == 2 and inside[1] == 2:
                    _move_pair(state, at, axes, p * step, bounds)
                else:
                    _move_region(state, at, axes, inside, p * step, bounds)


@inline_jit
def _move_pair(
    state: Array, at: Places, axes: tuple[Axis, Axis], step: Lanes, bounds: Bounds
) -> None:
    """Regions of 2×2. Nothing is stored before all is loaded, so that both axes are computed in
    parallel."""
    B = axes[0].step
    down = axes[0].stride
    right = axes[1].stride
    limits = (0.5, bounds.gamma_min, bounds.gamma_max)
    # weights along rows and columns, the error at the four elements, μ and γ
    y0 = load(state, at.w)
    y1 = load(state, at.w + B)
    x0 = load(state, at.w + 2 * B)
    x1 = load(state, at.w + 3 * B)
    z00 = load(state, at.z)
    z01 = load(state, at.z + right)
    z10 = load(state, at.z + down)
    z11 = load(state, at.z + down + right)
    my = load(state, at.mu)
    mx = load(state, at.mu + B)
    gy = load(state, at.gamma)
    gx = load(state, at.gamma + B)
    # the slope along an axis, summed over the other with its weights
    first_y = formulas.pair_moment(y0, y1, fma(z00, x0, z01 * x1), fma(z10, x0, z11 * x1))
    first_x = formulas.pair_moment(x0, x1, fma(z00, y0, z10 * y1), fma(z01, y0, z11 * y1))
    rows = formulas.step_theta(
        (my, gy), formulas.theta_gradient(my, gy, first_y, 0.0), step, limits
    )
    columns = formulas.step_theta(
        (mx, gx), formulas.theta_gradient(mx, gx, first_x, 0.0), step, limits
    )
    _store_pair_weights(state, at.w, B, rows, columns)
    store(state, at.mu, rows[0])
    store(state, at.mu + B, columns[0])
    store(state, at.gamma, rows[1])
    store(state, at.gamma + B, columns[1])


@jit
def _move_region(
    state: Array,
    at: Places,
    axes: tuple[Axis, Axis],
    inside: tuple[int, int],
    step: Lanes,
    bounds: Bounds,
) -> None:
    """Regions of any size. All gradients come before the first new weight."""
    y, x = axes
    rows = Movement(0, y, inside[0], _axis_gradient(state, at, 0, y, x))
    columns = Movement(1, x, inside[1], _axis_gradient(state, at, 1, x, y))
    _move_axis(state, at, rows, step, bounds)
    _move_axis(state, at, columns, step, bounds)


@jit
def _axis_gradient(state: Array, at: Places, a: int, axis: Axis, other: Axis) -> Pair:
    """∇θ of axis a without the factor p̂."""
    mu = load(state, at.mu + a * axis.step)
    gamma = load(state, at.gamma + a * axis.step)
    # moments are taken about the mean: no digits are lost in narrow regions
    mean = axis_mean(state, at.w, axis)
    _, first, second = axis_moments(state, at.z, at.w, axis, other, mean)
    return formulas.theta_gradient(mu - mean, gamma, first, second)


@jit
def _move_axis(state: Array, at: Places, move: Movement, step: Lanes, bounds: Bounds) -> None:
    """Take the step of one axis and its new weights."""
    axis = move.axis
    mu_at = at.mu + move.number * axis.step
    gamma_at = at.gamma + move.number * axis.step
    theta = load(state, mu_at), load(state, gamma_at)
    limits = ((axis.size - 1) / 2, bounds.gamma_min, bounds.gamma_max)
    theta = formulas.step_theta(theta, move.gradient, step, limits)
    store(state, mu_at, theta[0])
    store(state, gamma_at, theta[1])
    axis_weights(state, at.w, axis, theta, move.inside, 0)
