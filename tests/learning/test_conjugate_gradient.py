import torch

from operators import draw
from whatwhere.learning.conjugate_gradient import conjugate_gradient


def test_solves_a_dense_system() -> None:
    half = draw(12, 12)
    A, b = half @ half.T + torch.eye(12), draw(12, seed=1)
    x0 = draw(12, seed=2)
    x = conjugate_gradient(lambda d: A @ d, b - A @ x0, x0, steps=60)
    torch.testing.assert_close(x, torch.linalg.solve(A, b), rtol=1e-8, atol=1e-8)


def test_one_step_is_steepest_descent() -> None:
    half = draw(6, 6)
    A, b, x0 = half @ half.T, draw(6, seed=1), draw(6, seed=2)
    r = b - A @ x0
    torch.testing.assert_close(conjugate_gradient(lambda d: A @ d, r, x0, steps=1), x0 + (r @ r) / (r @ A @ r) * r)


def test_nothing_to_gain_changes_nothing() -> None:
    x0 = draw(4)
    assert torch.equal(conjugate_gradient(lambda d: d, torch.zeros(4, dtype=torch.float64), x0, 5), x0)
