"""The small functions that the kernels share: weights of a region, shrinkage, penalty. Each is one formula.

They mirror `ops.pooling` and `ops.sparsity`, element by element, for tiles held in registers.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl


@triton.jit
def axis_weight(i: tl.constexpr, mu, gamma, room, S: tl.constexpr, RAGGED: tl.constexpr):
    """w_i = √softmax_i(-γ (x_i - μ)² / 2) along one axis, over the first `room` elements: the others do not exist.

    At s = 2 it is a sigmoid of a = γ μ:  w_1 = 1/√(1 + t²),  w_0 = t w_1,  t = exp(-a/2). Beyond |a| = 80 the
    smaller weight is under 1e-17, so a is cut there to keep t² finite (a switch has a = 5000).
    """
    if S == 1:
        w = mu * 0 + 1
    elif S == 2:
        t = tl.exp(-tl.minimum(tl.maximum(gamma * mu, -80.0), 80.0) / 2)
        last = tl.rsqrt(1 + t * t)
        w = last if i == 1 else t * last
        if RAGGED:
            w = tl.where(room > 1, w, 1.0 - i)
    else:
        top = mu * 0 - float("inf")
        for j in tl.static_range(S):
            top = tl.maximum(top, tl.where(room > j, exponent(j, mu, gamma, S), -float("inf")))
        total = mu * 0
        for j in tl.static_range(S):
            root = tl.exp((exponent(j, mu, gamma, S) - top) / 2)  # of every element once: the compiler shares them
            total += tl.where(room > j, root * root, 0.0)
        w = tl.where(room > i, tl.exp((exponent(i, mu, gamma, S) - top) / 2) * tl.rsqrt(total), 0.0)
    return w


@triton.jit
def exponent(i: tl.constexpr, mu, gamma, S: tl.constexpr):
    x = i - (S - 1) / 2
    return -gamma / 2 * (x - mu) * (x - mu)


@triton.jit
def place(errors, i: tl.constexpr, PLACES: tl.constexpr):
    """Element i of every region, from errors [M, PLACES, maps]: PLACES lie in one thread, so this moves nothing."""
    here = (tl.arange(0, PLACES) == i)[None, :, None]
    return tl.sum(tl.where(here, errors, 0.0), axis=1)


@triton.jit
def pooled(
    errors, mu_y, mu_x, gamma_y, gamma_x, room_y, room_x,
    S: tl.constexpr, RAGGED_Y: tl.constexpr, RAGGED_X: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """The errors at z pooled, g = Σ w e, and for each axis what the gradients of its Gaussian need:

        Σ w e (x - x̄)   and   Σ w e [(x - μ)² - Σ q (x - μ)²]          (see `ops.pooling.pooling_gradient`)

    At s = 2, (w_0, w_1) is a unit vector and the first is w_0 w_1 (w_0 r_1 - w_1 r_0), with r the errors pooled along
    the other axis; the second is -2 μ times the first.
    """
    if S == 2:
        w_y0 = axis_weight(0, mu_y, gamma_y, room_y, S, RAGGED_Y)
        w_y1 = axis_weight(1, mu_y, gamma_y, room_y, S, RAGGED_Y)
        w_x0 = axis_weight(0, mu_x, gamma_x, room_x, S, RAGGED_X)
        w_x1 = axis_weight(1, mu_x, gamma_x, room_x, S, RAGGED_X)
        e_00, e_01 = place(errors, 0, PLACES), place(errors, 1, PLACES)
        e_10, e_11 = place(errors, 2, PLACES), place(errors, 3, PLACES)
        r_0, r_1 = w_x0 * e_00 + w_x1 * e_01, w_x0 * e_10 + w_x1 * e_11
        c_0, c_1 = w_y0 * e_00 + w_y1 * e_10, w_y0 * e_01 + w_y1 * e_11
        g = w_y0 * r_0 + w_y1 * r_1
        along_mu_y = w_y0 * w_y1 * (w_y0 * r_1 - w_y1 * r_0)
        along_mu_x = w_x0 * w_x1 * (w_x0 * c_1 - w_x1 * c_0)
        along_gamma_y, along_gamma_x = -2 * mu_y * along_mu_y, -2 * mu_x * along_mu_x
    else:
        mean_y, spread_y = moments(mu_y, gamma_y, room_y, S, RAGGED_Y)
        mean_x, spread_x = moments(mu_x, gamma_x, room_x, S, RAGGED_X)
        g = mu_y * 0
        along_mu_y, along_mu_x, along_gamma_y, along_gamma_x = g, g, g, g
        for i in tl.static_range(S):
            w_y = axis_weight(i, mu_y, gamma_y, room_y, S, RAGGED_Y)
            y = i - (S - 1) / 2
            for j in tl.static_range(S):
                x = j - (S - 1) / 2
                slope = w_y * axis_weight(j, mu_x, gamma_x, room_x, S, RAGGED_X) * place(errors, i * S + j, PLACES)
                g += slope
                along_mu_y += slope * (y - mean_y)
                along_mu_x += slope * (x - mean_x)
                along_gamma_y += slope * ((y - mu_y) * (y - mu_y) - spread_y)
                along_gamma_x += slope * ((x - mu_x) * (x - mu_x) - spread_x)
    return g, along_mu_y, along_mu_x, along_gamma_y, along_gamma_x


@triton.jit
def fitted(
    errors, room_y, room_x, mu_scale, gamma_scale, gamma_min, gamma_max,
    S: tl.constexpr, POWER: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """`ops.pooling.fit_moments` of the signal at z, times the scales: μ and γ along rows and columns."""
    largest = tl.max(tl.abs(errors), axis=1)
    unit = tl.where(largest > 0, 1 / tl.where(largest > 0, largest, 1.0), 0.0)
    total, y, x, yy, xx = unit * 0, unit * 0, unit * 0, unit * 0, unit * 0
    for i in tl.static_range(S):
        for j in tl.static_range(S):
            w = fit_weight(errors, unit, room_y, room_x, i, j, S, POWER, PLACES)
            total += w
            y += w * (i - (S - 1) / 2)
            x += w * (j - (S - 1) / 2)
    share = tl.where(total > 0, 1 / tl.where(total > 0, total, 1.0), 0.0)
    y, x = y * share, x * share
    for i in tl.static_range(S):
        for j in tl.static_range(S):
            w = fit_weight(errors, unit, room_y, room_x, i, j, S, POWER, PLACES)
            dy, dx = i - (S - 1) / 2 - y, j - (S - 1) / 2 - x
            yy += w * dy * dy
            xx += w * dx * dx
    REACH: tl.constexpr = (S - 1) / 2
    gamma_y = clamp(precision(total, yy, gamma_min, gamma_max) * gamma_scale, gamma_min, gamma_max)
    gamma_x = clamp(precision(total, xx, gamma_min, gamma_max) * gamma_scale, gamma_min, gamma_max)
    return clamp(y * mu_scale, -REACH, REACH), clamp(x * mu_scale, -REACH, REACH), gamma_y, gamma_x


@triton.jit
def fit_weight(
    errors, unit, room_y, room_x, i: tl.constexpr, j: tl.constexpr,
    S: tl.constexpr, POWER: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """|s|^power of one element of every region; 0 where it does not exist."""
    w = tl.abs(place(errors, i * S + j, PLACES)) * unit
    w = w * w if POWER == 2 else w
    return tl.where((room_y > i) & (room_x > j), w, 0.0)


@triton.jit
def precision(total, spread, gamma_min, gamma_max):
    """1 / variance within its bounds; the least where there is no signal."""
    inverse = tl.where(spread > 0, total / tl.where(spread > 0, spread, 1.0), gamma_max)
    return clamp(tl.where(total > 0, inverse, 0.0), gamma_min, gamma_max)


@triton.jit
def moments(mu, gamma, room, S: tl.constexpr, RAGGED: tl.constexpr):
    """x̄ = Σ q x and Σ q (x - μ)² along one axis, q = w²."""
    mean = mu * 0
    spread = mu * 0
    for i in tl.static_range(S):
        x = i - (S - 1) / 2
        w = axis_weight(i, mu, gamma, room, S, RAGGED)
        mean += w * w * x
        spread += w * w * (x - mu) * (x - mu)
    return mean, spread


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


@triton.jit
def load_theta(theta, at, here, plane):
    """μ and γ along rows and columns, from four planes one after the other."""
    mu_y, mu_x = tl.load(theta + at, mask=here, other=0.0), tl.load(theta + plane + at, mask=here, other=0.0)
    theta += 2 * plane
    gamma_y, gamma_x = tl.load(theta + at, mask=here, other=0.0), tl.load(theta + plane + at, mask=here, other=0.0)
    return mu_y, mu_x, gamma_y, gamma_x


@triton.jit
def store_theta(theta, at, here, plane, mu_y, mu_x, gamma_y, gamma_x):
    tl.store(theta + at, mu_y, mask=here)
    tl.store(theta + plane + at, mu_x, mask=here)
    tl.store(theta + 2 * plane + at, gamma_y, mask=here)
    tl.store(theta + 3 * plane + at, gamma_x, mask=here)
