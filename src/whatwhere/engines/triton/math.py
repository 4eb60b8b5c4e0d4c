"""`formulas` compiled by Triton, and what `ops.pooling` does with them, for tiles held in
registers."""

from typing import Any

import triton
import triton.language as tl

from whatwhere.formulas import compile_formulas

# Functions of our own around Triton's, since its interpreter replaces those in `tl` for the time of
# a launch.


@triton.jit
def abs(x):  # named as the formulas call it: torch.compile copies sources by name
    return tl.abs(x)


@triton.jit
def clamp(x, low, high):
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit
def exp(x):
    return tl.exp(x)


@triton.jit
def maximum(x, y):
    return tl.maximum(x, y)


@triton.jit
def power(x, exponent):
    return tl.exp2(exponent * tl.log2(x))


@triton.jit
def rsqrt(x):
    return tl.rsqrt(x)


@triton.jit
def sqrt(x):
    return tl.sqrt(x)


@triton.jit
def where(condition, yes, no):
    return tl.where(condition, yes, no)


formulas: Any = compile_formulas(
    triton.jit,
    tl=tl,
    abs=abs,
    clamp=clamp,
    exp=exp,
    maximum=maximum,
    pow=power,
    rsqrt=rsqrt,
    sqrt=sqrt,
    where=where,
)


@triton.jit
def place(errors, i: tl.constexpr, PLACES: tl.constexpr):
    """Return element i of every region, from errors [M, PLACES, maps]: PLACES lie in one thread, so
    this moves nothing."""
    here = (tl.arange(0, PLACES) == i)[None, :, None]
    return tl.sum(tl.where(here, errors, 0.0), axis=1)


@triton.jit
def element(errors, i: tl.constexpr, SHAPE: tl.constexpr):
    """Do the same where regions overlap from a tuple of their elements."""
    if SHAPE.tiled:  # noqa: SIM108
        error = place(errors, i, SHAPE.places)
    else:
        error = errors[i]
    return error


@triton.jit
def _axis_means(w, first: tl.constexpr, like, S: tl.constexpr):
    """Σ q x and Σ q x² along the axis whose S weights begin with `first`, shaped `like` a
    tensor."""
    mean, square = like * 0, like * 0
    for i in tl.static_range(S):
        mean += w[first + i] * w[first + i] * (i - (S - 1) / 2)
        square += w[first + i] * w[first + i] * ((i - (S - 1) / 2) * (i - (S - 1) / 2))
    return mean, square


@triton.jit
def pooled(errors, w, SHAPE: tl.constexpr):
    """Pool the errors at z, g = Σ w e, and for each axis what the gradients of its Gaussian need:

        Σ w e (x - x̄)   and   Σ w e (x² - Σ q x²)          (see `ops.pooling.Weights.gradient`)

    In regions of 2 × 2, the first is `formulas.pooling.pair_moment` of the errors pooled along the
    other axis, and the second is 0.
    """
    S_Y: tl.constexpr = SHAPE.pool_shape[0]
    S_X: tl.constexpr = SHAPE.pool_shape[1]
    if S_Y == 2 and S_X == 2:
        e_00, e_01 = element(errors, 0, SHAPE), element(errors, 1, SHAPE)
        e_10, e_11 = element(errors, 2, SHAPE), element(errors, 3, SHAPE)
        r_0, r_1 = w[2] * e_00 + w[3] * e_01, w[2] * e_10 + w[3] * e_11
        c_0, c_1 = w[0] * e_00 + w[1] * e_10, w[0] * e_01 + w[1] * e_11
        g = w[0] * r_0 + w[1] * r_1
        first_y, first_x = (
            formulas.pair_moment(w[0], w[1], r_0, r_1),
            formulas.pair_moment(w[2], w[3], c_0, c_1),
        )
        second_y, second_x = g * 0, g * 0
    else:
        mean_y, square_y = _axis_means(w, 0, w[0], S_Y)
        mean_x, square_x = _axis_means(w, S_Y, w[0], S_X)
        g = w[0] * 0
        first_y, first_x, second_y, second_x = g, g, g, g
        for i in tl.static_range(S_Y):
            y = i - (S_Y - 1) / 2
            for j in tl.static_range(S_X):
                x = j - (S_X - 1) / 2
                slope = w[i] * w[S_Y + j] * element(errors, i * S_X + j, SHAPE)
                g += slope
                first_y += slope * (y - mean_y)
                first_x += slope * (x - mean_x)
                second_y += slope * (y * y - square_y)
                second_x += slope * (x * x - square_x)
    return g, first_y, first_x, second_y, second_x


@triton.jit
def moved(theta, moments, rate, gamma_bounds, S: tl.constexpr):
    """`formulas.step_theta` along one axis, from its two sums of `pooled`; this order needs the
    fewest registers."""
    mu, gamma = theta
    first, second = moments
    new = mu - rate * gamma / 2 * first, gamma + rate / 4 * (second - 2 * mu * first)
    return formulas.bound(new[0], new[1], ((S - 1) / 2, gamma_bounds[0], gamma_bounds[1]))


@triton.jit
def fitted(errors, room_y, room_x, numbers, SHAPE: tl.constexpr, POWER: tl.constexpr):
    """`ops.pooling.fit_moments` of the signal at z, times the scales of a schedule: θ along rows
    and columns."""
    S_Y: tl.constexpr = SHAPE.pool_shape[0]
    S_X: tl.constexpr = SHAPE.pool_shape[1]
    largest = tl.max(tl.abs(errors), axis=1)
    unit = tl.where(largest > 0, 1 / formulas.or_one(largest), 0.0)
    total, y, x, yy, xx = unit * 0, unit * 0, unit * 0, unit * 0, unit * 0
    for i in tl.static_range(S_Y):
        for j in tl.static_range(S_X):
            w = formulas.strength(place(errors, i * S_X + j, SHAPE.places) * unit, POWER)
            w = tl.where((room_y > i) & (room_x > j), w, 0.0)
            total += w
            y += w * (i - (S_Y - 1) / 2)
            x += w * (j - (S_X - 1) / 2)
    share = 1 / formulas.or_one(total)
    y, x = y * share, x * share
    for i in tl.static_range(S_Y):
        for j in tl.static_range(S_X):
            w = formulas.strength(place(errors, i * S_X + j, SHAPE.places) * unit, POWER)
            w = tl.where((room_y > i) & (room_x > j), w, 0.0)
            dy, dx = i - (S_Y - 1) / 2 - y, j - (S_X - 1) / 2 - x
            yy += w * dy * dy
            xx += w * dx * dx
    low, high = numbers.gamma_bounds
    mu_scale, gamma_scale = numbers.start_scales
    gamma_y, gamma_x = (
        formulas.precision(yy * share, total, low, high),
        formulas.precision(xx * share, total, low, high),
    )
    y, x = (y * mu_scale, gamma_y * gamma_scale), (x * mu_scale, gamma_x * gamma_scale)
    y = formulas.bound(y[0], y[1], ((S_Y - 1) / 2, low, high))
    return y, formulas.bound(x[0], x[1], ((S_X - 1) / 2, low, high))
