"""Gaussian pooling of LANES regions at a time, for the CPU engine and for the layers of
`whatwhere.nn`.

Regions are elements and weights in one flat array, `memory`: each number of LANES regions is a
vector.
"""

from typing import NamedTuple

from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.simd import Lanes, Pair, load, splat, store
from whatwhere.engines.jit.vector_math import absolute, exp, fma, formulas, maximum, rsqrt, where

OUTSIDE = -1e30  # the exponent of an element outside the map: its weight is exactly zero


class Axis(NamedTuple):
    """An axis of regions in memory: `size` elements at a distance of `stride`, and weights for them
    at a distance of `step`, the first at `weights` from where the region's weights begin."""

    size: int
    stride: int
    weights: int
    step: int


@inline_jit
def coordinate(i: int, size: int) -> float:
    """x of element i of an axis, centred."""
    return i - (size - 1) / 2


@jit
def axis_weights(memory: Array, w: int, axis: Axis, theta: Pair, inside: int, outside: int) -> None:
    """Store w = √q, q = softmax(-γ (x - μ)² / 2), over the first `inside` elements, which lie in
    the map.

    `outside` is 0, or how far from the weights numbers are that are added to the exponents:
    OUTSIDE, or 0.
    """
    (mu, gamma), step, first = theta, axis.step, w + axis.weights
    if axis.size == 2 and inside == 2 and outside == 0:
        w0, w1 = formulas.pair_weights(mu, gamma)
        store(memory, first, w0)
        store(memory, first + step, w1)
        return
    largest = splat(memory, OUTSIDE)
    for i in range(inside):
        exponent = formulas.exponent(coordinate(i, axis.size), mu, gamma)
        if outside > 0:
            exponent = exponent + load(memory, first + outside + i * step)
        store(memory, first + i * step, exponent)
        largest = maximum(largest, exponent)
    norm = splat(memory, 0)
    for i in range(inside):
        root = exp((load(memory, first + i * step) - largest) * 0.5)
        norm = fma(root, root, norm)
        store(memory, first + i * step, root)
    scale = rsqrt(norm)
    for i in range(axis.size):
        store(
            memory,
            first + i * step,
            load(memory, first + i * step) * scale if i < inside else splat(memory, 0),
        )


@inline_jit
def _pool_line(memory: Array, z: int, w: int, axis: Axis) -> Lanes:
    """Σ w e over the elements e along one axis."""
    at = w + axis.weights
    if axis.size == 2:
        return fma(
            load(memory, z),
            load(memory, at),
            load(memory, z + axis.stride) * load(memory, at + axis.step),
        )
    pooled = splat(memory, 0)
    for i in range(axis.size):
        pooled = fma(load(memory, z + i * axis.stride), load(memory, at + i * axis.step), pooled)
    return pooled


@inline_jit
def pool_plane(memory: Array, z: int, w: int, y: Axis, x: Axis) -> Lanes:
    """Σ w_y w_x e over the elements e of regions."""
    at = w + y.weights
    if y.size == 2 and x.size == 2:
        left, right = load(memory, w + x.weights), load(memory, w + x.weights + x.step)
        top = fma(load(memory, z), left, load(memory, z + x.stride) * right)
        bottom = fma(
            load(memory, z + y.stride), left, load(memory, z + y.stride + x.stride) * right
        )
        return fma(top, load(memory, at), bottom * load(memory, at + y.step))
    pooled = splat(memory, 0)
    for i in range(y.size):
        pooled = fma(
            _pool_line(memory, z + i * y.stride, w, x), load(memory, at + i * y.step), pooled
        )
    return pooled


@jit
def spread(memory: Array, z: int, w: int, p: Lanes, axes: tuple[Axis, Axis], add: bool) -> None:
    """e = w_y w_x p for the elements of regions, added to what is there or in place of it."""
    y, x = axes
    y_at, x_at = w + y.weights, w + x.weights
    if y.size == 2 and x.size == 2 and not add:
        left, right = load(memory, x_at), load(memory, x_at + x.step)
        top, bottom = p * load(memory, y_at), p * load(memory, y_at + y.step)
        store(memory, z, top * left)
        store(memory, z + x.stride, top * right)
        store(memory, z + y.stride, bottom * left)
        store(memory, z + y.stride + x.stride, bottom * right)
        return
    for i in range(y.size):
        row = p * load(memory, y_at + i * y.step)
        for j in range(x.size):
            at, weight = z + i * y.stride + j * x.stride, load(memory, x_at + j * x.step)
            store(memory, at, fma(row, weight, load(memory, at)) if add else row * weight)


@inline_jit
def axis_mean(memory: Array, w: int, own: Axis) -> Lanes:
    """Σ q x of an axis."""
    mean = splat(memory, 0)
    for i in range(own.size):
        weight = load(memory, w + own.weights + i * own.step)
        mean = fma(weight * weight, coordinate(i, own.size), mean)
    return mean


@jit
def axis_moments(
    memory: Array, z: int, w: int, own: Axis, other: Axis, centre: Lanes
) -> tuple[Lanes, Lanes, Lanes]:
    """For one axis, with r_i the elements pooled along the other: Σ w_i r_i, and the sums of
    `formulas.theta_gradient`:

    Σ w_i r_i (x_i - Σ q x)   and   Σ w_i r_i (x_i² - Σ q x²)

    Here x is counted from `centre`, and so must μ be: counted from Σ q x, the sums lose no digits
    to cancellation.
    """
    at = w + own.weights
    if own.size == 2:
        r0, r1 = _pool_line(memory, z, w, other), _pool_line(memory, z + own.stride, w, other)
        w0, w1 = load(memory, at), load(memory, at + own.step)
        first = formulas.pair_moment(w0, w1, r0, r1)
        return fma(w0, r0, w1 * r1), first, first * (centre * -2.0)
    zero = splat(memory, 0)
    total, first, second, mean, square = zero, zero, zero, zero, zero
    for i in range(own.size):
        place, weight = coordinate(i, own.size) - centre, load(memory, at + i * own.step)
        share, q = weight * _pool_line(memory, z + i * own.stride, w, other), weight * weight
        total, first, second = (
            total + share,
            fma(share, place, first),
            fma(share, place * place, second),
        )
        mean, square = fma(q, place, mean), fma(q, place * place, square)
    return total, first - mean * total, second - square * total


@inline_jit
def pool_with_gradient(
    memory: Array, z: int, w: int, axes: tuple[Axis, Axis], theta: tuple[Pair, Pair]
) -> tuple[Lanes, Pair, Pair]:
    """P = Σ w_y w_x e of regions, and its gradients by θ = (μ, γ) along rows and along columns."""
    (y, x), ((mu_y, gamma_y), (mu_x, gamma_x)) = axes, theta
    pooled, first_y, second_y = axis_moments(memory, z, w, y, x, mu_y)
    _, first_x, second_x = axis_moments(memory, z, w, x, y, mu_x)
    rows = formulas.theta_gradient(0.0, gamma_y, first_y, second_y)
    return pooled, rows, formulas.theta_gradient(0.0, gamma_x, first_x, second_x)


class AxisMoments(NamedTuple):
    """Where the signal of LANES regions is along one axis, counted from the centre."""

    mean: Lanes
    variance: Lanes


class Moments(NamedTuple):
    """The moments of |s|^power in LANES regions.

    Parameters
    ----------
    largest
        |s|
    total
        Σ |s|^power, relative to the largest
    rows, columns
        along each axis
    """

    largest: Lanes
    total: Lanes
    rows: AxisMoments
    columns: AxisMoments


@inline_jit
def _fit_pair_moments(
    memory: Array, z: int, down: int, right: int, power: int, floor: float
) -> Moments:
    """`fit_moments` of 2×2: with shares q₀ and q₁ of an axis' two elements, mean (q₁ - q₀) / 2 and
    variance q₀ q₁."""
    s00 = load(memory, z)
    s01 = load(memory, z + right)
    s10 = load(memory, z + down)
    s11 = load(memory, z + down + right)
    # relative to the largest, so that no power is out of range
    largest = maximum(maximum(absolute(s00), absolute(s01)), maximum(absolute(s10), absolute(s11)))
    scale = where(largest > floor, 1 / formulas.or_one(largest), 0.0)
    s00 = formulas.strength(s00 * scale, power)
    s01 = formulas.strength(s01 * scale, power)
    s10 = formulas.strength(s10 * scale, power)
    s11 = formulas.strength(s11 * scale, power)
    total = s00 + s01 + (s10 + s11)
    # the shares of both rows and of both columns
    share = 1 / formulas.or_one(total)
    top = (s00 + s01) * share
    bottom = (s10 + s11) * share
    west = (s00 + s10) * share
    east = (s01 + s11) * share
    rows = AxisMoments((bottom - top) * 0.5, top * bottom)
    columns = AxisMoments((east - west) * 0.5, west * east)
    return Moments(largest, total, rows, columns)


@inline_jit
def fit_moments(
    memory: Array, z: int, axes: tuple[Axis, Axis], power: int, floor: float
) -> Moments:
    """Return the moments of |s|^power in regions of these rows and columns. Up to the floor there
    is no signal."""
    y, x = axes
    if y.size == 2 and x.size == 2:
        return _fit_pair_moments(memory, z, y.stride, x.stride, power, floor)
    zero = splat(memory, 0)
    largest = zero
    for i in range(y.size):
        for j in range(x.size):
            largest = maximum(largest, absolute(load(memory, z + i * y.stride + j * x.stride)))
    # relative to the largest, so that no power is out of range
    scale = where(largest > floor, 1 / formulas.or_one(largest), 0.0)
    total = zero
    mean_y = zero
    mean_x = zero
    for i in range(y.size):
        row = zero
        at = z + i * y.stride
        for j in range(x.size):
            s = formulas.strength(load(memory, at + j * x.stride) * scale, power)
            row = row + s
            mean_x = fma(s, coordinate(j, x.size), mean_x)
        total = total + row
        mean_y = fma(row, coordinate(i, y.size), mean_y)
    share = 1 / formulas.or_one(total)
    mean_y = mean_y * share
    mean_x = mean_x * share
    # from the means, so that no digits cancel
    v_y = zero
    v_x = zero
    for i in range(y.size):
        row = zero
        at = z + i * y.stride
        from_y = coordinate(i, y.size) - mean_y
        for j in range(x.size):
            s = formulas.strength(load(memory, at + j * x.stride) * scale, power)
            from_x = coordinate(j, x.size) - mean_x
            row = row + s
            v_x = fma(s, from_x * from_x, v_x)
        v_y = fma(row, from_y * from_y, v_y)
    rows = AxisMoments(mean_y, v_y * share)
    columns = AxisMoments(mean_x, v_x * share)
    return Moments(largest, total, rows, columns)
