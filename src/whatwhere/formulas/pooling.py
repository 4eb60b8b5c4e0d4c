"""Gaussian pooling on single numbers: the weights of a region, their gradient, the step of θ, and
the moment fit.

Along an axis a region has elements at x, centred; its Gaussian is θ = (μ, γ) with weights w = √q.
"""

from torch import abs, clamp, exp, rsqrt, sqrt, where
from torch import clamp_min as maximum

# --- the weights of a region's elements along one axis


def exponent(x, mu, gamma):
    """log q of the element at x, without the normalisation: q = softmax_i(-γ (x_i - μ)² / 2)
    (Eqns. normGauss and gauss)."""
    d = x - mu
    return -gamma * 0.5 * (d * d)


def pair_weights(mu, gamma):
    """Compute the weights of two elements, x = ±½, q = σ(-γμ) and σ(γμ): the larger is 1/√(1 + t²),
    the smaller t/√(1 + t²)."""
    a = mu * gamma * 0.5
    t = exp(where(a > 0, -a, a))  # not by an absolute value: torch takes 0 as its derivative at 0
    larger = rsqrt(1 + t * t)
    smaller = t * larger
    return where(a > 0, smaller, larger), where(a > 0, larger, smaller)


def pair_difference(mu, gamma):
    """w_1 - w_0 of two elements. This one number gives both weights, because w_0² + w_1² = 1.

    The exponent is clamped where the smaller weight is below 1e-17, so that no square overflows.
    """
    t = exp(-clamp(mu * gamma * 0.5, -40.0, 40.0))
    return (1 - t) * rsqrt(1 + t * t)


def weights_from_difference(d):
    """Compute the inverse of `pair_difference`: the two weights."""
    s = sqrt(2 - d * d)
    return (s - d) * 0.5, (s + d) * 0.5


# --- the gradient of the pooling variables, their step, and their bounds


def pair_moment(w0, w1, r0, r1):
    """Σ w_i r_i (x_i - x̄) of two elements with errors r; the second moment that `theta_gradient`
    asks for is 0."""
    return w0 * w1 * (w0 * r1 - w1 * r0)


def theta_gradient(mu, gamma, first, second):
    """∂/∂μ and ∂/∂γ of Σ w_i r_i along one axis with errors r (Eqn. poolgrad, see
    `ops.pooling.Weights.gradient`), from

    first = Σ w_i r_i (x_i - Σ q x),   second = Σ w_i r_i (x_i² - Σ q x²)
    """
    return gamma * 0.5 * first, mu * 0.5 * first - second * 0.25


def bound(mu, gamma, bounds):
    """Keep a mean inside its region and a precision between its bounds; `bounds` = (reach, γ_min,
    γ_max)."""
    return clamp(mu, -bounds[0], bounds[0]), clamp(gamma, bounds[1], bounds[2])


def step_theta(theta, gradient, step, bounds):
    """θ ← bound(θ - λ β_U ∇θ) along one axis; `step` is λ β_U."""
    return bound(theta[0] - step * gradient[0], theta[1] - step * gradient[1], bounds)


# --- the Gaussian fitted to the moments of a signal


def or_one(size):
    """Return a safe divisor: 1 in place of 0, where the dividend is 0 as well.

    A number below the normal numbers of float32 counts as 0, because its inverse can overflow.
    """
    return where(size > 1.17549435e-38, size, 1.0)


def strength(relative, power):
    """Compute the weight |s|^power of a signal in its moments. `relative` is s divided by the
    largest |s| of its region: moments depend on the shape of the signal, not on its size."""
    size = abs(relative)
    return size * size if power == 2 else size


def strength_slope(relative, power):
    """Compute the derivative of `strength`: 2 s, or the sign of s."""
    return 2 * relative if power == 2 else relative / or_one(abs(relative))


def precision(variance, total, low, high):
    """γ = 1 / variance, bounded; the smallest γ without a signal (`total` = 0).

    The variance is bounded before it is inverted: the derivative of 1 / 0 is NaN, even where a
    later bound cuts the value off.
    """
    inverse = 1 / maximum(variance, 1 / max(high, 1.0))
    return clamp(where(total > 1.17549435e-38, inverse, 0.0), low, high)


def fit_slope(theta, variance, slopes, unit):
    """Compute the derivatives of Σ w z and θ by the strength of an element at x, along one axis: a
    (x - μ) + b ((x - μ)² - v).

    `slopes` by μ and γ; `unit` = ∂ strength / Σ strength. Where a bound determines γ, b is 0.
    Returns a, b and b v.
    """
    free = where(1 / variance == theta[1], -theta[1] * theta[1], 0.0)
    b = unit * slopes[1] * free
    return unit * slopes[0], b, where(b == 0, 0.0, b * variance)
