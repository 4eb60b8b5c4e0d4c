"""The small functions that the kernels share: gradients of θ, shrinkage, penalty. Each is one formula.

They mirror `ops.pooling` and `ops.sparsity`, element by element, for tiles held in registers.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl


@triton.jit
def place(errors, i: tl.constexpr, PLACES: tl.constexpr):
    """Element i of every region, from errors [M, PLACES, maps]: PLACES lie in one thread, so this moves nothing."""
    here = (tl.arange(0, PLACES) == i)[None, :, None]
    return tl.sum(tl.where(here, errors, 0.0), axis=1)


@triton.jit
def pooled(errors, w, S: tl.constexpr, PLACES: tl.constexpr):
    """The errors at z pooled, g = Σ w e, and for each axis what the gradients of its Gaussian need:

        Σ w e (x - x̄)   and   Σ w e (x² - Σ q x²)          (see `ops.pooling.pooling_gradient`)

    At s = 2, (w_0, w_1) is a unit vector and the first is w_0 w_1 (w_0 r_1 - w_1 r_0), with r the errors pooled along
    the other axis; the second is 0.
    """
    if S == 2:
        e_00, e_01 = place(errors, 0, PLACES), place(errors, 1, PLACES)
        e_10, e_11 = place(errors, 2, PLACES), place(errors, 3, PLACES)
        r_0, r_1 = w[2] * e_00 + w[3] * e_01, w[2] * e_10 + w[3] * e_11
        c_0, c_1 = w[0] * e_00 + w[1] * e_10, w[0] * e_01 + w[1] * e_11
        g = w[0] * r_0 + w[1] * r_1
        first_y = w[0] * w[1] * (w[0] * r_1 - w[1] * r_0)
        first_x = w[2] * w[3] * (w[2] * c_1 - w[3] * c_0)
        second_y, second_x = g * 0, g * 0
    else:
        mean_y, mean_x, square_y, square_x = w[0] * 0, w[0] * 0, w[0] * 0, w[0] * 0
        for i in tl.static_range(S):
            x = i - (S - 1) / 2
            mean_y += w[i] * w[i] * x
            mean_x += w[S + i] * w[S + i] * x
            square_y += w[i] * w[i] * x * x
            square_x += w[S + i] * w[S + i] * x * x
        g = w[0] * 0
        first_y, first_x, second_y, second_x = g, g, g, g
        for i in tl.static_range(S):
            y = i - (S - 1) / 2
            for j in tl.static_range(S):
                x = j - (S - 1) / 2
                slope = w[i] * w[S + j] * place(errors, i * S + j, PLACES)
                g += slope
                first_y += slope * (y - mean_y)
                first_x += slope * (x - mean_x)
                second_y += slope * (y * y - square_y)
                second_x += slope * (x * x - square_x)
    return g, first_y, first_x, second_y, second_x


@triton.jit
def moved(theta, moments, rate, gamma_bounds, S: tl.constexpr):
    """bound(θ - λ β_U ∇θ) along one axis from two sums of `pooled`: Σ w e [(x - μ)² - Σ q (x - μ)²] is
    second - 2 μ first."""
    REACH: tl.constexpr = (S - 1) / 2
    mu, gamma = theta
    first, second = moments
    new_mu = clamp(mu - rate * gamma / 2 * first, -REACH, REACH)
    return new_mu, clamp(gamma + rate / 4 * (second - 2 * mu * first), gamma_bounds[0], gamma_bounds[1])


@triton.jit
def fitted(errors, room_y, room_x, numbers, SHAPE: tl.constexpr, POWER: tl.constexpr):
    """`ops.pooling.fit_moments` of the signal at z, times the scales of a schedule: θ along rows and columns."""
    S: tl.constexpr = SHAPE.pool_size
    largest = tl.max(tl.abs(errors), axis=1)
    unit = tl.where(largest > 0, 1 / tl.where(largest > 0, largest, 1.0), 0.0)
    total, y, x, yy, xx = unit * 0, unit * 0, unit * 0, unit * 0, unit * 0
    for i in tl.static_range(S):
        for j in tl.static_range(S):
            w = fit_weight(place(errors, i * S + j, SHAPE.places) * unit, (room_y > i) & (room_x > j), POWER)
            total += w
            y += w * (i - (S - 1) / 2)
            x += w * (j - (S - 1) / 2)
    share = tl.where(total > 0, 1 / tl.where(total > 0, total, 1.0), 0.0)
    y, x = y * share, x * share
    for i in tl.static_range(S):
        for j in tl.static_range(S):
            w = fit_weight(place(errors, i * S + j, SHAPE.places) * unit, (room_y > i) & (room_x > j), POWER)
            dy, dx = i - (S - 1) / 2 - y, j - (S - 1) / 2 - x
            yy += w * dy * dy
            xx += w * dx * dx
    REACH: tl.constexpr = (S - 1) / 2
    gamma_min, gamma_max = numbers.gamma_bounds
    mu_scale, gamma_scale = numbers.start_scales
    gamma_y = clamp(precision(total, yy, gamma_min, gamma_max) * gamma_scale, gamma_min, gamma_max)
    gamma_x = clamp(precision(total, xx, gamma_min, gamma_max) * gamma_scale, gamma_min, gamma_max)
    return (clamp(y * mu_scale, -REACH, REACH), gamma_y), (clamp(x * mu_scale, -REACH, REACH), gamma_x)


@triton.jit
def fit_weight(signal, exists, POWER: tl.constexpr):
    """|s|^power of one element of every region; 0 where it does not exist."""
    w = tl.abs(signal)
    w = w * w if POWER == 2 else w
    return tl.where(exists, w, 0.0)


@triton.jit
def precision(total, spread, gamma_min, gamma_max):
    """1 / variance within its bounds; the least where there is no signal."""
    inverse = tl.where(spread > 0, total / tl.where(spread > 0, spread, 1.0), gamma_max)
    return clamp(tl.where(total > 0, inverse, 0.0), gamma_min, gamma_max)


@triton.jit
def shrink(p, beta, ALPHA: tl.constexpr, EXACT: tl.constexpr):
    """`sparsity.shrink` or `shrink_exact`. Newton's steps find the exact map's root u of u - |p| + β/2 u^-½ = 0
    as s = √u, the largest root of s³ - |p| s + β/2, from above, where the cubic is convex."""
    magnitude = tl.abs(p)
    if ALPHA == 1:
        smaller = magnitude - beta
    elif EXACT:
        s = tl.sqrt(magnitude)
        for _ in tl.static_range(6):
            s -= (s * s * s - magnitude * s + beta / 2) / (3 * s * s - magnitude)
        # compared by cubes: |p| > 3/2 β^(2/3)
        keeps = magnitude * magnitude * magnitude > 3.375 * beta * beta
        smaller = tl.where(keeps, s * s, 0.0)
    elif ALPHA == 0.5:
        smaller = magnitude - beta / 2 * tl.rsqrt(magnitude)
    else:
        smaller = magnitude - beta * ALPHA * tl.exp2((ALPHA - 1) * tl.log2(magnitude))
    signed = tl.where(p < 0, -smaller, smaller)
    return tl.where(smaller > 0, signed, 0.0)


@triton.jit
def penalty(p, ALPHA: tl.constexpr):
    """|p|^α of every element."""
    magnitude = tl.abs(p)
    if ALPHA == 1:
        power = magnitude
    elif ALPHA == 0.5:
        power = tl.sqrt(magnitude)
    else:
        power = tl.where(magnitude > 0, tl.exp2(ALPHA * tl.log2(magnitude)), 0.0)
    return power


@triton.jit
def clamp(x, low, high):
    return tl.minimum(tl.maximum(x, low), high)
