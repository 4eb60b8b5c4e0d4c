"""Every linear map is linear, and its adjoint is its adjoint."""

import pytest
import torch

from operators import OPERATORS, draw


@pytest.mark.parametrize("name", OPERATORS)
def test_adjoint(name: str) -> None:
    A = OPERATORS[name]
    x, y = draw(*A.domain, seed=7), draw(*A.range, seed=8)
    Ax, Aty = A.apply(x), A.adjoint(y)
    assert Ax.shape == y.shape
    assert Aty.shape == x.shape
    assert Ax.norm() > 0
    assert (torch.sum(Ax * y) - torch.sum(x * Aty)).abs() / (Ax.norm() * y.norm()) <= 1e-12


@pytest.mark.parametrize("name", OPERATORS)
def test_linear(name: str) -> None:
    A = OPERATORS[name]
    x, y = draw(*A.domain, seed=7), draw(*A.domain, seed=8)
    torch.testing.assert_close(A.apply(2 * x - 3 * y), 2 * A.apply(x) - 3 * A.apply(y))
