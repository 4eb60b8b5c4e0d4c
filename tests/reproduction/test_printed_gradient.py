"""The study of Eqns. 19 and 20 as printed."""

import math

import pytest
import torch

import whatwhere as ww
from reproduction.studies.printed_gradient import measure, printed
from whatwhere.ops.pooling import Regions, gaussian_weights


def by_hand(error: list[float], p: float, mu: list[float], gamma: list[float]) -> list[float]:
    """∂/∂(μ_y, μ_x, γ_y, γ_x) of a region of 2 × 2 elements, equation by equation."""
    places = [(y, x) for y in (-0.5, 0.5) for x in (-0.5, 0.5)]
    a = [
        math.exp(-sum(g / 2 * (c - m) ** 2 for c, m, g in zip(at, mu, gamma, strict=True)))
        for at in places
    ]
    w = [math.sqrt(one / sum(a)) for one in a]
    found = []
    for kind in ("mu", "gamma"):
        for axis in (0, 1):
            offset = [at[axis] - mu[axis] for at in places]
            slope = [
                gamma[axis] * d if kind == "mu" else -(d**2) / 2 for d in offset
            ]  # Eqns. 21 to 24
            da = [s * one for s, one in zip(slope, a, strict=True)]
            total = 0.0
            for i in range(4):
                for j in range(4):
                    printed_as = (1 - w[i]) if i == j else w[j]  # Eqns. 20 and 19
                    total += error[i] * p * printed_as / sum(a) * da[j]
            found.append(total)
    return found


def test_the_printed_gradient_is_that_of_the_print() -> None:
    regions = Regions.of((1, 2, 2), (2, 2), (2, 2), 1)
    mu, gamma = torch.tensor([0.3, -0.2]), torch.tensor([1.5, 4.0])
    theta = ww.PoolingParams(mu.view(1, 2, 1, 1, 1), gamma.view(1, 2, 1, 1, 1))
    error = torch.tensor([0.4, -1.0, 2.0, 0.7])
    got = printed(
        gaussian_weights(theta, regions),
        error.view(1, 1, 2, 2),
        torch.full((1, 1, 1, 1), 0.8),
        theta,
    )
    expected = by_hand(error.tolist(), 0.8, mu.tolist(), gamma.tolist())
    assert [*got.mu.flatten().tolist(), *got.gamma.flatten().tolist()] == pytest.approx(
        expected, rel=1e-4
    )


@torch.no_grad()
def test_the_printed_gradient_goes_uphill_and_the_derivative_downhill() -> None:
    cost = measure(images=2, steps=3)["cost"]
    assert (
        cost["as printed"][-1] > cost["as printed"][0] == cost["derived"][0] > cost["derived"][-1]
    )
