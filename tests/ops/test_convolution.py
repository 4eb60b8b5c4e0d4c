"""Convolution against SciPy, and its adjoints."""

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d, correlate2d

from operators import OPERATORS, draw
from whatwhere.ops.convolution import (
    convolve_down,
    convolve_up,
    filter_gradient,
)


def test_down_is_the_valid_convolution_of_the_paper() -> None:
    z, f = draw(2, 3, 8, 9), draw(2, 3, 4, 4)
    expected = [
        [sum(convolve2d(z[n, b], f[c, b], mode="valid") for b in range(3)) for c in range(2)]
        for n in range(2)
    ]
    np.testing.assert_allclose(convolve_down(z, f).numpy(), expected, atol=1e-12)


def test_up_is_the_full_correlation() -> None:
    v, f = draw(2, 2, 5, 6), draw(2, 3, 4, 4)
    expected = [
        [sum(correlate2d(v[n, c], f[c, b], mode="full") for c in range(2)) for b in range(3)]
        for n in range(2)
    ]
    np.testing.assert_allclose(convolve_up(v, f).numpy(), expected, atol=1e-12)


def test_filter_gradient_is_autograds() -> None:
    z, f, v = draw(2, 3, 8, 9), draw(2, 3, 4, 4).requires_grad_(), draw(2, 2, 5, 6, seed=1)
    (expected,) = torch.autograd.grad(torch.sum(convolve_down(z, f) * v), f)
    torch.testing.assert_close(filter_gradient(z, v), expected)


def test_images_smaller_than_a_filter() -> None:
    v, f = draw(1, 1, 1, 3), draw(1, 2, 5, 5)
    z = convolve_up(v, f)
    assert z.shape == (1, 2, 5, 7)
    assert convolve_down(z, f).shape == v.shape


# Connectivity -------------------------------------------------------------------------------------


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
