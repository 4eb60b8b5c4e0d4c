"""The computations of the kernels on regions: a thread holds a region in its registers.

Everything is computed in float32, or in float64 for float64 maps. Loops over a region's elements
are unrolled and follow the formulas; loads and weights that several loops use are the same
expressions, which the compiler computes once.
"""

from collections import namedtuple
from dataclasses import dataclass

import triton
import triton.language as tl

from whatwhere.engines.triton.math import formulas

# What the kernels read, or write: z and p [N, C, …], μ and γ [N, 2, C, h, w] of rows and columns,
# each with its strides
Memory = namedtuple("Memory", "z p mu gamma z_strides p_strides mu_strides gamma_strides")
# Sizes of the map and of the grid of regions, the distance of regions, and how far the first begins
# before the map
Sizes = namedtuple("Sizes", "N C H W h w stride_y stride_x padding_y padding_x")
# Regions in a map: their first elements, where these are, which exist, the map's size and strides
Region = namedtuple("Region", "z top left live H W zy zx")
# What determines the weights of a region along an axis: where it begins, the map's extent, μ and γ
Axis = namedtuple("Axis", "first extent mu gamma")
# Peak and scale of the weights along an axis: w_i = scale exp(exponent_i - peak)
Norm = namedtuple("Norm", "peak scale")
# Values of a region, or their gradients
Values = namedtuple("Values", "p mu_y mu_x gamma_y gamma_x")
# The moments of a region: the largest |z|, Σ|z|^power in units of it, μ and γ, variances
Fit = namedtuple("Fit", "largest total mu_y mu_x gamma_y gamma_x variance_y variance_x")
# What a region contributes to the gradient of its elements; see `contribution`
Slopes = namedtuple("Slopes", "mu_y mu_x gamma_y gamma_x scale peak largest c a_y a_x b_y b_x")


@dataclass(frozen=True)
class Rule:
    """What a kernel is compiled for.

    Parameters
    ----------
    inside
        all regions lie inside the map
    theta
        μ and γ are given, or wanted
    wide
        offsets need 64 bits
    stride
        from one region to the next, where regions overlap
    """

    operation: str
    size: tuple[int, int]
    power: int
    inside: bool
    channels_last: bool
    theta: bool
    wide: bool
    stride: tuple[int, int] = (0, 0)


@triton.jit
def zeros(pointer, like):
    """Zeros shaped like a tensor, in the dtype of all computations with these maps."""
    DTYPE: tl.constexpr = tl.float64 if pointer.dtype.element_ty == tl.float64 else tl.float32
    return tl.zeros(like.shape, DTYPE)


@triton.jit
def program_index(BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Return the numbers of the BLOCK regions or cells of a program."""
    first = tl.program_id(0)
    if WIDE:
        first = first.to(tl.int64)
    return first * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def place(index, C, H, W, CHANNELS_LAST: tl.constexpr):
    """Image, channel, row and column of the index-th element in the order of memory."""
    if CHANNELS_LAST:
        c, rest = index % C, index // C
        x, rest = rest % W, rest // W
        return rest // H, c, rest % H, x
    x, rest = index % W, index // W
    y, rest = rest % H, rest // H
    return rest // C, rest % C, y, x


@triton.jit
def map_offset(strides, at):
    """Return where the elements at = (n, c, y, x) of a map are."""
    return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3]


@triton.jit
def theta_offset(strides, at):
    """Return where μ or γ along rows of the regions at = (n, c, y, x) is; along columns it is
    strides[1] further on."""
    return at[0] * strides[0] + at[1] * strides[2] + at[2] * strides[3] + at[3] * strides[4]


@triton.jit
def region_at(maps, at, live, sizes):
    """Return the regions at = (n, c, y, x) in the map z of `maps`."""
    n, c, y, x = at
    top = y * sizes.stride_y - sizes.padding_y
    left = x * sizes.stride_x - sizes.padding_x
    zn, zc, zy, zx = maps.z_strides
    first = maps.z + (n * zn + c * zc + top * zy + left * zx)
    return Region(first, top, left, live, sizes.H, sizes.W, zy, zx)


@triton.jit
def load_values(maps, at, live, RULE: tl.constexpr):
    """p, μ and γ of each region, or their gradients; 0 for θ that is not given."""
    p = tl.load(maps.p + map_offset(maps.p_strides, at), mask=live, other=0)
    p = p.to(zeros(maps.p, live).dtype)
    mu_y = p * 0
    mu_x = p * 0
    gamma_y = p * 0
    gamma_x = p * 0
    if RULE.theta:
        mu = maps.mu + theta_offset(maps.mu_strides, at)
        gamma = maps.gamma + theta_offset(maps.gamma_strides, at)
        mu_y = tl.load(mu, mask=live, other=0).to(p.dtype)
        mu_x = tl.load(mu + maps.mu_strides[1], mask=live, other=0).to(p.dtype)
        gamma_y = tl.load(gamma, mask=live, other=0).to(p.dtype)
        gamma_x = tl.load(gamma + maps.gamma_strides[1], mask=live, other=0).to(p.dtype)
    return Values(p, mu_y, mu_x, gamma_y, gamma_x)


@triton.jit
def inside(r, i: tl.constexpr, j: tl.constexpr, INSIDE: tl.constexpr):
    """Tell whether element (i, j) of every region lies in the map."""
    there = r.live
    if not INSIDE:
        row = r.top + i
        column = r.left + j
        there = r.live & (row >= 0) & (row < r.H) & (column >= 0) & (column < r.W)
    return there


@triton.jit
def element(r, i: tl.constexpr, j: tl.constexpr, INSIDE: tl.constexpr):
    """z(i) of every region; 0 beyond the map."""
    z = tl.load(r.z + i * r.zy + j * r.zx, mask=inside(r, i, j, INSIDE), other=0)
    return z.to(zeros(r.z, r.top).dtype)


@triton.jit
def exponent(i: tl.constexpr, axis, K: tl.constexpr, INSIDE: tl.constexpr):
    """log w_i without the normalisation, or -∞ beyond the map."""
    h = formulas.exponent(i - (K - 1) / 2, axis.mu, axis.gamma) * 0.5
    if not INSIDE:
        position = axis.first + i
        h = tl.where((position >= 0) & (position < axis.extent), h, float("-inf"))
    return h


@triton.jit
def norm(axis, K: tl.constexpr, INSIDE: tl.constexpr):
    """Compute what makes Σ w² = 1; the peak is subtracted before the exponential, which cannot
    overflow."""
    peak = exponent(0, axis, K, INSIDE)
    for i in tl.static_range(1, K):
        peak = tl.maximum(peak, exponent(i, axis, K, INSIDE))
    total = axis.mu * 0
    for i in tl.static_range(K):
        w = tl.exp(exponent(i, axis, K, INSIDE) - peak)
        total += w * w
    return Norm(peak, 1 / tl.sqrt(total))


@triton.jit
def weight(i: tl.constexpr, axis, norm, K: tl.constexpr, INSIDE: tl.constexpr):
    return tl.exp(exponent(i, axis, K, INSIDE) - norm.peak) * norm.scale


@triton.jit
def fit(r, bounds, RULE: tl.constexpr):
    """Compute the moments of each region; an empty region has a total of 1 and infinite
    variances."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    # the unit of all sums is the largest element: squares neither overflow nor vanish
    largest = zeros(r.z, r.top)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            largest = tl.maximum(largest, tl.abs(element(r, i, j, RULE.inside)))
    empty = largest == 0
    largest = formulas.or_one(largest)
    # means of the coordinates
    total = zeros(r.z, r.top)
    mu_y = zeros(r.z, r.top)
    mu_x = zeros(r.z, r.top)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = formulas.strength(element(r, i, j, RULE.inside) / largest, RULE.power)
            total += a
            mu_y += a * (i - (KY - 1) / 2)
            mu_x += a * (j - (KX - 1) / 2)
    total = formulas.or_one(total)
    mu_y = mu_y / total
    mu_x = mu_x / total
    # variances about the means, in a second pass over registers: no cancellation
    v_y = zeros(r.z, r.top)
    v_x = zeros(r.z, r.top)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            a = formulas.strength(element(r, i, j, RULE.inside) / largest, RULE.power)
            v_y += a * (i - (KY - 1) / 2 - mu_y) * (i - (KY - 1) / 2 - mu_y)
            v_x += a * (j - (KX - 1) / 2 - mu_x) * (j - (KX - 1) / 2 - mu_x)
    v_y = tl.where(empty, float("inf"), v_y / total)
    v_x = tl.where(empty, float("inf"), v_x / total)
    gamma_y = formulas.precision(v_y, total, bounds[0], bounds[1])
    gamma_x = formulas.precision(v_x, total, bounds[0], bounds[1])
    return Fit(largest, total, mu_y, mu_x, gamma_y, gamma_x, v_y, v_x)


@triton.jit
def sums(r, theta, RULE: tl.constexpr):
    """P = Σ w z of each region and its derivatives by θ = (μ_y, μ_x, γ_y, γ_x); then the norms of
    both axes."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    INSIDE: tl.constexpr = RULE.inside
    mu_y, mu_x, g_y, g_x = theta
    axis_y = Axis(r.top, r.H, mu_y, g_y)
    axis_x = Axis(r.left, r.W, mu_x, g_x)
    norm_y = norm(axis_y, KY, INSIDE)
    norm_x = norm(axis_x, KX, INSIDE)
    # first and second moments about μ, of w z (m, s) and of q (q, r)
    p = zeros(r.z, r.top)
    m_y = p
    m_x = p
    s_y = p
    s_x = p
    q_y = p
    q_x = p
    r_y = p
    r_x = p
    for i in tl.static_range(KY):
        w_y = weight(i, axis_y, norm_y, KY, INSIDE)
        y = i - (KY - 1) / 2 - mu_y
        row = zeros(r.z, r.top)
        for j in tl.static_range(KX):
            w_x = weight(j, axis_x, norm_x, KX, INSIDE)
            x = j - (KX - 1) / 2 - mu_x
            share = w_x * element(r, i, j, INSIDE)
            row += share
            m_x += w_y * share * x
            s_x += w_y * share * x * x
            # q along columns is the same in every row: summed in the first
            if i == 0:
                q_x += w_x * w_x * x
                r_x += w_x * w_x * x * x
        p += w_y * row
        m_y += w_y * row * y
        s_y += w_y * row * y * y
        q_y += w_y * w_y * y
        r_y += w_y * w_y * y * y
    d_mu_y, d_g_y = formulas.theta_gradient(0.0, g_y, m_y - p * q_y, s_y - p * r_y)
    d_mu_x, d_g_x = formulas.theta_gradient(0.0, g_x, m_x - p * q_x, s_x - p * r_x)
    return p, (d_mu_y, d_mu_x, d_g_y, d_g_x), norm_y, norm_x


@triton.jit
def fit_slopes(r, gradients, bounds, RULE: tl.constexpr):
    """Compute what each region contributes to the gradient of its elements, from the gradients by
    its values."""
    d_p, d_mu_y, d_mu_x, d_g_y, d_g_x = gradients
    f = fit(r, bounds, RULE)
    _, by_theta, norm_y, norm_x = sums(r, (f.mu_y, f.mu_x, f.gamma_y, f.gamma_x), RULE)
    m_y, m_x, n_y, n_x = by_theta
    unit = 1 / f.total / tl.maximum(f.largest, 1e-30)
    # through p to θ, and directly to θ; then through the fit to the elements
    by_rows = d_p * m_y + d_mu_y, d_p * n_y + d_g_y
    by_columns = d_p * m_x + d_mu_x, d_p * n_x + d_g_x
    a_y, b_y, c_y = formulas.fit_slope((f.mu_y, f.gamma_y), f.variance_y, by_rows, unit)
    a_x, b_x, c_x = formulas.fit_slope((f.mu_x, f.gamma_x), f.variance_x, by_columns, unit)
    scale = d_p * norm_y.scale * norm_x.scale
    peak = norm_y.peak + norm_x.peak
    theta = f.mu_y, f.mu_x, f.gamma_y, f.gamma_x
    return Slopes(*theta, scale, peak, f.largest, -c_y - c_x, a_y, a_x, b_y, b_x)


@triton.jit
def contribution(v, i: tl.constexpr, j: tl.constexpr, s, RULE: tl.constexpr):
    """Compute what a region contributes to ∇z at its element (i, j), whose value is v:

    ∇p w(i) + r(i) (c + a_y y + b_y y² + a_x x + b_x x²),   y and x from μ,

    with r(i) the derivative of |z|^power, z in units of the largest.
    """
    y = i - (RULE.size[0] - 1) / 2 - s.mu_y
    x = j - (RULE.size[1] - 1) / 2 - s.mu_x
    w = tl.exp(-0.25 * (s.gamma_y * y * y + s.gamma_x * x * x) - s.peak)
    slope = formulas.strength_slope(v / s.largest, RULE.power)
    return s.scale * w + slope * (s.c + s.a_y * y + s.b_y * y * y + s.a_x * x + s.b_x * x * x)
