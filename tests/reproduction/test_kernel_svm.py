"""The Gaussian-kernel SVM: its minimum against a general optimiser, its linear relative, its limits."""

import numpy as np
import pytest
import torch

from reproduction.svm.kernel_svm import kernel_rows, solve
from whatwhere.classification import fit_svm


def ring(seed: int = 0, count: int = 60) -> tuple[torch.Tensor, np.ndarray]:
    """Three classes around one another: no linear classifier separates them."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    angle, radius = rng.uniform(0, 2 * np.pi, count), 1 + y + rng.normal(0, 0.25, count)
    return torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], 1) * radius[:, None]), y


@pytest.mark.parametrize("C", [0.3, 30.0])
def test_the_coefficients_minimise_the_objective(C: float) -> None:
    """The objective as the docstring writes it is convex: a point where its gradient is 0 is the minimum."""
    x, y = ring()
    K = torch.exp(-(x[:, None] - x[None]).square().sum(2) / (2 * 0.7**2)) + 1
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    a = solve(K, t, C).requires_grad_()
    slack = (1 - t * (K @ a)).clamp(min=0)
    objective = (a * (K @ a)).sum() / 2 + C * slack.square().sum()
    (gradient,) = torch.autograd.grad(objective, a)
    assert gradient.abs().max() < 1e-8 * C
    assert (slack > 1e-3).any(), "some images are inside the margin"


def test_kernels_are_what_their_formulas_say() -> None:
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    for i, j in np.ndindex(5, 4):
        distance = float((x[i] - y[j]).square().sum())
        assert float(kernel_rows(x, y, 0.7, batch=2)[i, j]) == pytest.approx(np.exp(-distance / (2 * 0.7**2)) + 1)
        assert float(kernel_rows(x, y)[i, j]) == pytest.approx(float(x[i] @ y[j]) + 1)


def test_it_separates_what_no_linear_svm_does() -> None:
    x, y = ring()
    other, labels = ring(seed=1)
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    a = solve(kernel_rows(x, x, 0.7), t, 10.0)
    predicted = (kernel_rows(other, x, 0.7) @ a).argmax(1).numpy()
    assert (predicted != labels).mean() < 0.15
    assert (fit_svm(x.float().numpy(), y, C=10.0).predict(other.float().numpy()) != labels).mean() > 0.4


def test_with_the_kernel_of_dot_products_it_is_the_linear_svm() -> None:
    rng = np.random.default_rng(3)
    y = np.arange(90) % 3
    x = (np.eye(3)[y] + rng.normal(0, 0.6, (90, 3))).astype(np.float32)
    linear = fit_svm(x, y, C=2.0)
    K = torch.from_numpy(x @ x.T + 1).double()
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    np.testing.assert_allclose((x.T @ solve(K, t, 2.0).numpy()).T, linear.weights, atol=2e-3)


def test_a_start_and_a_quarter_of_the_images_lead_to_the_same_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = ring(count=90)
    K = kernel_rows(x, x, 0.7, batch=7)
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    plain = solve(K, t, 5.0)
    np.testing.assert_allclose(solve(K, t, 5.0, start=solve(K, t, 50.0)), plain, atol=1e-8)
    monkeypatch.setattr("reproduction.svm.kernel_svm.QUARTERED", 30)
    np.testing.assert_allclose(solve(K, t, 5.0), plain, atol=1e-8)
