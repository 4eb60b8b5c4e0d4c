"""The step of the pooling variables of one image, LANES maps at a time: ∇θ, the bounds, the new weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from whatwhere.inference.engines.cpu.pooling import (
    axes_of,
    element_offset,
    elements_inside,
    region_offset,
    store_pair_weights,
    weights_offset,
)
from whatwhere.inference.engines.cpu.records import Layer
from whatwhere.inference.engines.jit import Array, inline_jit, jit
from whatwhere.inference.engines.jit.region import Axis, axis_moments, axis_weights
from whatwhere.inference.engines.jit.simd import LANES, any_nonzero, load, noinline, store
from whatwhere.inference.engines.jit.vector_math import fma, formulas


@jit
def update_pooling(state: Array, layer: Layer, step: float, bounds: tuple[float, float], everywhere: bool) -> None:
    """θ ← bound(θ - step ∇θ) and new weights where p̂ ≠ 0; elsewhere the gradient is zero. `bounds` are those of γ.

    `everywhere` is for the first step: variables that the caller gave may lie outside their bounds.
    """
    noinline()
    B, count, axes, pairs = layer.maps, layer.axes, axes_of(layer), layer.pool == 2 and layer.axes == 2
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at, w_at = element_offset(layer, layer.features, row, column), weights_offset(layer, row, column)
            z_at, inside = region_offset(layer, layer.z_error, row, column), elements_inside(layer, row, column)
            theta = (row * layer.columns + column) * count * B
            for b in range(0, B, LANES):
                p = load(state, p_at + b)
                if not (everywhere or any_nonzero(p)):
                    continue
                at = Places(layer.mu + theta + b, layer.gamma + theta + b, w_at + b, z_at + b)
                if pairs and inside[0] == 2 and inside[1] == 2:
                    move_pair(state, at, axes, p * step, bounds)
                else:
                    move_region(state, at, axes, inside, (p * step, bounds[0], bounds[1]))


class Places(NamedTuple):
    """Where μ, γ and the weights of LANES regions begin, and their elements."""

    mu: int
    gamma: int
    w: int
    z: int


@inline_jit
def move_pair(state: Array, at: Places, axes: Any, step: Any, bounds: tuple[float, float]) -> None:
    """Regions of 2×2. Nothing is stored before all is loaded, so that both axes are computed in parallel."""
    B, down, right, limits = axes[0].step, axes[0].stride, axes[1].stride, (0.5, bounds[0], bounds[1])
    y0, y1, x0, x1 = load(state, at.w), load(state, at.w + B), load(state, at.w + 2 * B), load(state, at.w + 3 * B)
    z00, z01 = load(state, at.z), load(state, at.z + right)
    z10, z11 = load(state, at.z + down), load(state, at.z + down + right)
    my, mx = load(state, at.mu), load(state, at.mu + B)
    gy, gx = load(state, at.gamma), load(state, at.gamma + B)
    first_y = formulas.pair_moment(y0, y1, fma(z00, x0, z01 * x1), fma(z10, x0, z11 * x1))
    first_x = formulas.pair_moment(x0, x1, fma(z00, y0, z10 * y1), fma(z01, y0, z11 * y1))
    rows = formulas.step_theta((my, gy), formulas.theta_gradient(my, gy, first_y, 0.0), step, limits)
    columns = formulas.step_theta((mx, gx), formulas.theta_gradient(mx, gx, first_x, 0.0), step, limits)
    store_pair_weights(state, at.w, B, rows, columns)
    store(state, at.mu, rows[0])
    store(state, at.mu + B, columns[0])
    store(state, at.gamma, rows[1])
    store(state, at.gamma + B, columns[1])


@jit
def move_region(state: Array, at: Places, axes: Any, inside: tuple[int, int, int], how: Any) -> None:
    """Regions of any size, by `how` = (step, γ_min, γ_max). All gradients come before the first new weight."""
    y, x, d = axes
    rows = axis_moments(state, at.z, at.w, y, (d, x), 0.0)
    columns = axis_moments(state, at.z, at.w, x, (d, y), 0.0)
    if d.size > 1:
        maps = axis_moments(state, at.z, at.w, d, (y, x), 0.0)
        move_axis(state, at, 2, (d, inside[2]), maps, how)
    move_axis(state, at, 0, (y, inside[0]), rows, how)
    move_axis(state, at, 1, (x, inside[1]), columns, how)


@jit
def move_axis(state: Array, at: Places, a: int, elements: tuple[Axis, int], moments: Any, how: Any) -> None:
    """The step of axis a and its new weights; `elements` = (the axis, how many of its elements lie in the map)."""
    axis, inside = elements
    mu_at, gamma_at = at.mu + a * axis.step, at.gamma + a * axis.step
    mu, gamma = load(state, mu_at), load(state, gamma_at)
    gradient = formulas.theta_gradient(mu, gamma, moments[1], moments[2])
    theta = formulas.step_theta((mu, gamma), gradient, how[0], ((axis.size - 1) / 2, how[1], how[2]))
    store(state, mu_at, theta[0])
    store(state, gamma_at, theta[1])
    axis_weights(state, at.w, axis, theta, inside, 0)
