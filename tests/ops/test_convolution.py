"""Convolution against SciPy, its adjoints, and filters: connectivity and projection."""

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d, correlate2d

from operators import OPERATORS, draw
from whatwhere.ops.convolution import (
    convolve_down,
    convolve_up,
    filter_gradient,
    project_filters,
    random_connectivity,
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


def test_each_map_joins_fan_in_different_maps() -> None:
    connected = random_connectivity(16, 48, 8, torch.Generator().manual_seed(0))
    assert connected.sum(0).tolist() == [8] * 48
    assert len({tuple(column.tolist()) for column in connected.T}) > 40  # drawn anew for every map


def test_all_connected_without_fan_in() -> None:
    assert random_connectivity(3, 4, None, torch.Generator()).all()


@pytest.mark.parametrize(("normalise", "dims"), [("filter", (0, 2, 3)), ("plane", (2, 3))])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_projected_filters_are_masked_and_of_unit_length(
    normalise: str, dims: tuple, nonnegative: bool
) -> None:
    connected = random_connectivity(6, 5, 3, torch.Generator().manual_seed(0))
    f = project_filters(draw(6, 5, 3, 3), connected, nonnegative=nonnegative, normalise=normalise)
    lengths = f.square().sum(dims)
    expected = torch.ones_like(lengths) if normalise == "filter" else connected.double()
    torch.testing.assert_close(lengths, expected)
    assert (f[~connected] == 0).all()
    assert bool((f >= 0).all()) == nonnegative


def test_a_vanished_filter_stays_zero() -> None:
    f = -torch.ones(2, 1, 3, 3)
    assert (
        project_filters(f, torch.ones(2, 1, dtype=torch.bool), nonnegative=True, normalise="filter")
        == 0
    ).all()


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
