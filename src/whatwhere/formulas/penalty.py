"""Sparsity on single numbers: what a feature costs, and the shrinkage that lowers it.

Compiled code is given a penalty as two numbers, (kind, parameter), which the values of
`spec.penalty` have as their `code`. `cost` and `shrink` choose by the kind; the penalties
themselves follow, one after the other.
"""

from torch import abs, clamp, pow, rsqrt, sqrt, where


def cost(p, penalty):
    """Return what a feature p costs."""
    return powered(p, penalty[1])


def shrink(p, beta, penalty):
    """Return the feature after a step of size β on its penalty."""
    return shrink_powered(p, beta, penalty[1])


# --- `Power`: |p|^α


def powered(p, alpha):
    """|p|^α."""
    size = abs(p)
    if alpha == 1:
        result = size
    elif alpha == 0.5:
        result = sqrt(size)
    else:
        result = pow(size, alpha)
    return result


def shrink_powered(p, beta, alpha):
    """Take one gradient step of size β on |p|^α, p - β α |p|^(α-1) sign p, that stops at zero.

    α = 1 is the soft threshold (Eqn. shrink), α = ½ the printed step (Eqn. shrinkL05).
    Deviation: where the step would cross zero, and at zero, where the print is undefined, p becomes
    0.
    """
    if alpha == 1:
        cut = beta
    else:
        size = abs(p)
        # The derivative of the power is NaN at zero, even where the result does not depend on it.
        size = where(size > 0, size, 1e-30)
        if alpha == 0.5:  # noqa: SIM108
            cut = beta * 0.5 * rsqrt(size)
        else:
            cut = beta * alpha * pow(size, alpha - 1)
    return p - clamp(p, -cut, cut)


def shrink_slopes(p, beta, alpha):
    """Return the derivatives of `shrink_powered` by p and β, 0 where its result is 0."""
    size = abs(p)
    size = where(size > 0, size, 1e-30)
    if alpha == 1:
        slope = 0 * size + 1
        growth = 0 * size
    else:
        slope = alpha * pow(size, alpha - 1)
        growth = beta * (1 - alpha) * slope / size
    kept = size > beta * slope
    return where(kept, 1 + growth, 0 * size), where(kept, where(p > 0, -slope, slope), 0 * size)
