"""The size of a step on single numbers: the line search, and FISTA's momentum."""

from torch import sqrt, where


def line_search(above, below):
    """β = ‖g‖² / (λ ‖M ⊙ R g‖²) (Eqn. autostep); 0 where there is no gradient."""
    return where(below > 0, above / below, 0.0)


def next_momentum(t, uphill):
    """Compute FISTA's next t, and the share (t - 1) / t' of the last change by which the next point
    is ahead.

    Restarted where the last step led uphill (O'Donoghue, Candès).
    """
    t = where(uphill > 0, 1.0, t)
    after = (1 + sqrt(1 + 4 * (t * t))) * 0.5
    return after, (t - 1) / after


def ahead(p, p_old, share):
    """Compute the point ahead of p by a share of its last change."""
    return p + share * (p - p_old)
