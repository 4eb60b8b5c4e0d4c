"""Pooling with fitted Gaussians in regions of 2 × 2 that fill the map: the most common layer.

A thread reads the two elements of a row at once, and the weights of a pair need one exponential, so
these kernels run at the speed of memory. Their arguments are plain tensors and numbers, and they
call functions by global names: `torch.compile` then copies their source into its own program and
launches them without a call through PyTorch's dispatcher.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from whatwhere.engines.triton.math import formulas
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

BLOCK = 512  # regions of one program, forward
LARGEST = 2**31  # elements: offsets have 32 bits
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
PAIRS = (1, 2, 2)

# `torch.compile` finds the functions that a kernel calls by these global names
fit_slope = formulas.fit_slope
or_one = formulas.or_one
pair_moment = formulas.pair_moment
pair_weights = formulas.pair_weights
precision = formulas.precision
strength = formulas.strength
strength_slope = formulas.strength_slope
theta_gradient = formulas.theta_gradient


def fills(regions: Regions) -> bool:
    """Tell whether regions of 2 × 2 lie side by side and fill the map."""
    if regions.size != PAIRS or regions.stride != PAIRS or regions.padding != (0, 0, 0):
        return False
    return regions.tiling and regions.extent == regions.shape


def holds(z: Tensor) -> bool:
    """Tell whether maps are as the kernels read them."""
    return z.dtype in DTYPES and z.is_contiguous() and z.numel() < LARGEST


def _backward_block(z: Tensor) -> int:
    """Return the regions of one program, backward: more would need more registers than there
    are."""
    return 128 if z.element_size() == 4 else 256


@triton.jit
def _region_index(BLOCK: tl.constexpr):
    """Return the numbers of the regions of a program, in the order of memory."""
    return tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _row_pair(index, width):
    """Return where the upper two elements of each region are, [BLOCK, 2]; the lower two are 2 width
    further on. A row of regions has 4 width elements, of which region (y, x) has skipped 4 x."""
    first = 4 * index - 2 * (index % width)
    return first[:, None] + tl.arange(0, 2)[None, :]


@triton.jit
def elements(z, index, live, width):
    """Return the elements a b of the upper and c d of the lower row of each region."""
    at = _row_pair(index, width)
    upper = tl.load(z + at, mask=live[:, None], other=0).to(tl.float32)
    lower = tl.load(z + at + 2 * width, mask=live[:, None], other=0).to(tl.float32)
    a, b = tl.split(upper)
    c, d = tl.split(lower)
    return a, b, c, d


@triton.jit
def strengths(a, b, c, d, POWER: tl.constexpr):
    """Compute the largest |z| of each region, and the strengths of its elements in units of it:
    squares neither overflow nor vanish."""
    largest = tl.maximum(tl.maximum(tl.abs(a), tl.abs(b)), tl.maximum(tl.abs(c), tl.abs(d)))
    unit = 1 / or_one(largest)
    s_a = strength(a * unit, POWER)
    s_b = strength(b * unit, POWER)
    s_c = strength(c * unit, POWER)
    s_d = strength(d * unit, POWER)
    return largest, s_a, s_b, s_c, s_d


@triton.jit
def _fit_axis(first, second, total, empty, low: tl.constexpr, high: tl.constexpr):
    """μ, γ and the variance along an axis, from the strengths of its halves at ∓½."""
    share = first / total
    other = second / total
    mu = 0.5 * (other - share)
    # about the mean, not ¼ - μ²: no cancellation
    variance = share * (0.5 + mu) * (0.5 + mu) + other * (0.5 - mu) * (0.5 - mu)
    variance = tl.where(empty, float("inf"), variance)
    return mu, precision(variance, total, low, high), variance


@triton.jit
def pair_fit_pool(
    z,
    p,
    width,
    count,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    POWER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """p(j) = Σ_i w(i) z(i) with the Gaussians fitted to z; γ lies between LOW and HIGH.

    The bounds are constants: torch.compile would pass numbers in double precision, in which γ is
    computed in another way than its derivative."""
    index = _region_index(BLOCK)
    live = index < count
    a, b, c, d = elements(z, index, live, width)
    largest, s_a, s_b, s_c, s_d = strengths(a, b, c, d, POWER)
    total = or_one(s_a + s_b + s_c + s_d)
    mu_y, gamma_y, _ = _fit_axis(s_a + s_b, s_c + s_d, total, largest == 0, LOW, HIGH)
    mu_x, gamma_x, _ = _fit_axis(s_a + s_c, s_b + s_d, total, largest == 0, LOW, HIGH)
    y_0, y_1 = pair_weights(mu_y, gamma_y)
    x_0, x_1 = pair_weights(mu_x, gamma_x)
    pooled = y_0 * (x_0 * a + x_1 * b) + y_1 * (x_0 * c + x_1 * d)
    tl.store(p + index, pooled, mask=live)


@triton.jit
def pair_fit_pool_backward(
    z,
    d_p,
    d_z,
    width,
    count,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    POWER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """∇z from ∇p: directly by the weights, and through the fit. For an element at (y, x) from μ

        ∇z = ∇p w + r (k + a_y y + b_y y² + a_x x + b_x x²)

    with r the derivative of its strength (`triton_region.contribution`)."""
    index = _region_index(BLOCK)
    live = index < count
    a, b, c, d = elements(z, index, live, width)
    g = tl.load(d_p + index, mask=live, other=0).to(tl.float32)
    largest, s_a, s_b, s_c, s_d = strengths(a, b, c, d, POWER)
    total = or_one(s_a + s_b + s_c + s_d)
    empty = largest == 0
    mu_y, gamma_y, v_y = _fit_axis(s_a + s_b, s_c + s_d, total, empty, LOW, HIGH)
    mu_x, gamma_x, v_x = _fit_axis(s_a + s_c, s_b + s_d, total, empty, LOW, HIGH)
    y_0, y_1 = pair_weights(mu_y, gamma_y)
    x_0, x_1 = pair_weights(mu_x, gamma_x)
    # the slopes of p by μ and γ of each axis, from the elements pooled along the other
    moment_y = pair_moment(y_0, y_1, x_0 * a + x_1 * b, x_0 * c + x_1 * d)
    moment_x = pair_moment(x_0, x_1, y_0 * a + y_1 * c, y_0 * b + y_1 * d)
    by_mu_y, by_gamma_y = theta_gradient(mu_y, gamma_y, moment_y, 0.0)
    by_mu_x, by_gamma_x = theta_gradient(mu_x, gamma_x, moment_x, 0.0)
    # through the fit to the strengths of the elements
    largest = or_one(largest)
    unit = 1 / total / tl.maximum(largest, 1e-30)
    a_y, b_y, k_y = fit_slope((mu_y, gamma_y), v_y, (g * by_mu_y, g * by_gamma_y), unit)
    a_x, b_x, k_x = fit_slope((mu_x, gamma_x), v_x, (g * by_mu_x, g * by_gamma_x), unit)
    t_0 = -0.5 - mu_y
    t_1 = 0.5 - mu_y
    u_0 = -0.5 - mu_x
    u_1 = 0.5 - mu_x
    row_0 = a_y * t_0 + b_y * t_0 * t_0 - k_y
    row_1 = a_y * t_1 + b_y * t_1 * t_1 - k_y
    column_0 = a_x * u_0 + b_x * u_0 * u_0 - k_x
    column_1 = a_x * u_1 + b_x * u_1 * u_1 - k_x
    d_a = g * y_0 * x_0 + strength_slope(a / largest, POWER) * (row_0 + column_0)
    d_b = g * y_0 * x_1 + strength_slope(b / largest, POWER) * (row_0 + column_1)
    d_c = g * y_1 * x_0 + strength_slope(c / largest, POWER) * (row_1 + column_0)
    d_d = g * y_1 * x_1 + strength_slope(d / largest, POWER) * (row_1 + column_1)
    at = _row_pair(index, width)
    tl.store(d_z + at, tl.join(d_a, d_b), mask=live[:, None])
    tl.store(d_z + at + 2 * width, tl.join(d_c, d_d), mask=live[:, None])


def launch_fit_pool(z: Tensor, p: Tensor, fit: MomentFit) -> None:
    """Pool maps z that are supported into p."""
    count = p.numel()
    pair_fit_pool[(triton.cdiv(count, BLOCK),)](
        z,
        p,
        p.shape[3],
        count,
        LOW=float(fit.gamma_min),
        HIGH=float(fit.gamma_max),
        POWER=fit.power,
        BLOCK=BLOCK,
    )


def launch_fit_pool_backward(z: Tensor, d_p: Tensor, d_z: Tensor, fit: MomentFit) -> None:
    """∇z of maps z that are supported."""
    count = d_p.numel()
    block = _backward_block(z)
    pair_fit_pool_backward[(triton.cdiv(count, block),)](
        z,
        d_p.contiguous(),
        d_z,
        d_p.shape[3],
        count,
        LOW=float(fit.gamma_min),
        HIGH=float(fit.gamma_max),
        POWER=fit.power,
        BLOCK=block,
    )


# --- for torch.compile, which looks into these operators


@triton_op("whatwhere::gaussian_pair_pool", mutates_args=())
def pair_pool(z: Tensor, low: float, high: float, power: int) -> Tensor:
    """p of maps z that are supported."""
    images, channels, height, width = z.shape
    p = z.new_empty(images, channels, height // 2, width // 2)
    count = p.numel()
    wrap_triton(pair_fit_pool)[(triton.cdiv(count, BLOCK),)](
        z, p, width // 2, count, LOW=low, HIGH=high, POWER=power, BLOCK=BLOCK
    )
    return p


@triton_op("whatwhere::gaussian_pair_pool_backward", mutates_args=())
def pair_pool_backward(z: Tensor, d_p: Tensor, low: float, high: float, power: int) -> Tensor:
    d_z = torch.empty_like(z)
    d_p = d_p.contiguous()
    count = d_p.numel()
    block = _backward_block(z)
    wrap_triton(pair_fit_pool_backward)[(triton.cdiv(count, block),)](
        z, d_p, d_z, d_p.shape[3], count, LOW=low, HIGH=high, POWER=power, BLOCK=block
    )
    return d_z


def _setup_context(ctx, inputs, output) -> None:
    z, *numbers = inputs
    ctx.save_for_backward(z)
    ctx.numbers = numbers


def _backward(ctx, d_p):
    (z,) = ctx.saved_tensors
    return pair_pool_backward(z, d_p, *ctx.numbers), None, None, None


pair_pool.register_autograd(_backward, setup_context=_setup_context)
