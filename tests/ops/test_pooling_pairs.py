"""Pooling in 2 × 2 regions, against the general form and against its own definition."""

from __future__ import annotations

import pytest
import torch

from whatwhere.latents import PoolingParams
from whatwhere.ops.pooling import SWITCH, Regions, gaussian_weights, pool, pooling_gradient, unpool
from whatwhere.ops.pooling_pairs import has_pairs, pair_weights

REGIONS = Regions.of((3, 8, 6), 2)


def example() -> tuple[PoolingParams, torch.Tensor, torch.Tensor]:
    """Pooling variables, features and a map at z: flat and sharp Gaussians, and switches."""
    torch.manual_seed(0)
    mu = (torch.rand(2, 2, 3, 4, 3, dtype=torch.float64) - 0.5).requires_grad_()
    gamma = (10 ** (4 * torch.rand_like(mu) - 2)).detach()
    gamma[0, 0, 0], gamma[0, 0, 1] = SWITCH, 0.0
    gamma.requires_grad_()
    p = torch.randn(2, 3, 4, 3, dtype=torch.float64, requires_grad=True)
    z = torch.randn(2, 3, 8, 6, dtype=torch.float64, requires_grad=True)
    return PoolingParams(mu, gamma), p, z


@pytest.mark.parametrize(
    "run",
    [
        lambda theta, p, z, U: unpool(p, U),
        lambda theta, p, z, U: pool(z, U),
        lambda theta, p, z, U: pooling_gradient(z, p, theta, U).mu,
        lambda theta, p, z, U: pooling_gradient(z, p, theta, U).gamma,
    ],
    ids=["unpool", "pool", "gradient of μ", "gradient of γ"],
)
def test_values_and_derivatives_are_those_of_the_general_form(run) -> None:
    found = []
    for make in (gaussian_weights, pair_weights):
        theta, p, z = example()
        out = run(theta, p, z, make(theta, REGIONS))
        (out * torch.sin(torch.arange(out.numel(), dtype=torch.float64)).view_as(out)).sum().backward()
        found.append([out.detach(), *(x.grad for x in (theta.mu, theta.gamma, p, z) if x.grad is not None)])
    assert len(found[0]) == len(found[1]) >= 4
    for general, pairs in zip(*found, strict=True):
        torch.testing.assert_close(pairs, general, rtol=1e-9, atol=1e-12)


def test_the_gradient_is_the_derivative_of_the_weights() -> None:
    theta, p, z = example()
    (unpool(p, pair_weights(theta, REGIONS)) * z.detach()).sum().backward()
    with torch.no_grad():
        gradient = pooling_gradient(z, p, theta, pair_weights(theta, REGIONS))
    torch.testing.assert_close(gradient.mu, theta.mu.grad)
    torch.testing.assert_close(gradient.gamma, theta.gamma.grad)


def test_only_regions_of_two_by_two_inside_the_map_are_pairs() -> None:
    assert has_pairs(REGIONS)
    others = [
        Regions.of((3, 8, 6), 3),
        Regions.of((3, 7, 6), 2),
        Regions.of((3, 8, 6), 2, 1),
        Regions.of((4, 8, 6), 2, maps=2),
    ]
    assert not any(has_pairs(regions) for regions in others)
