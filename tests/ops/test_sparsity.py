import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whatwhere.ops.sparsity import penalty, project, shrink


def by_brute_force(p: float, beta: float, alpha: float) -> float:
    """argmin_u ½ (u - p)² + β |u|^α over a fine grid, refined around its best point."""
    low, high = min(p, 0.0), max(p, 0.0)
    for _ in range(6):
        u = np.append(np.linspace(low, high, 20001), 0.0)
        best = u[np.argmin(0.5 * (u - p) ** 2 + beta * np.abs(u) ** alpha)]
        if best == 0:
            return 0.0
        width = (high - low) / 1000
        low, high = best - width, best + width
    return float(best)


@given(p=st.floats(-5, 5), beta=st.floats(0.001, 3))
def test_soft_threshold_minimises(p: float, beta: float) -> None:
    found = float(shrink(torch.tensor([p], dtype=torch.float64), torch.tensor(beta), 1.0))
    assert found == pytest.approx(by_brute_force(p, beta, 1.0), abs=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 0.6, 0.8, 1.0])
@given(p=st.floats(-5, 5).filter(lambda p: abs(p) > 1e-3), beta=st.floats(0.001, 3))
def test_gradient_shrinkage_as_printed(alpha: float, p: float, beta: float) -> None:
    stepped = p - beta * alpha * abs(p) ** (alpha - 1) * np.sign(p)
    expected = stepped if stepped * p > 0 else 0.0
    found = float(shrink(torch.tensor([p], dtype=torch.float64), torch.tensor(beta, dtype=torch.float64), alpha))
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("alpha", [0.5, 0.7, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_zero_stays_zero(alpha: float, beta: float) -> None:
    zero = torch.zeros(3)
    assert (shrink(zero, torch.tensor(beta), alpha) == 0).all()


@pytest.mark.parametrize("alpha", [0.5, 0.75, 1.0])
def test_penalty(alpha: float) -> None:
    p = torch.tensor([[-2.0, 0.0], [3.0, 0.25]], dtype=torch.float64)
    expected = [2.0**alpha, 3.0**alpha + 0.25**alpha]
    torch.testing.assert_close(penalty(p, alpha), torch.tensor(expected, dtype=torch.float64))


def test_projection() -> None:
    p = torch.tensor([-1.0, 2.0])
    assert project(p, nonnegative=True).tolist() == [0.0, 2.0]
    assert project(p, nonnegative=False).tolist() == [-1.0, 2.0]
