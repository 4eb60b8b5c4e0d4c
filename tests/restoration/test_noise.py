"""The estimate of noise, on pictures whose noise is known, and its threshold as a quantile."""

import pytest
import torch

from pictures_to_restore import discs, noisy
from whatwhere.restoration.noise import SIDE, TAU, estimate_noise


@pytest.mark.parametrize("sigma", [5, 15, 50])
def test_the_noise_is_estimated_within_five_per_cent(sigma: int) -> None:
    y = noisy(discs(160, 200, sigma), sigma / 255, sigma)
    assert estimate_noise(y) == pytest.approx(sigma / 255, rel=0.05)


def test_the_threshold_of_texture_is_a_quantile_of_pure_noise() -> None:
    """The sum of squared derivatives is a quadratic form nᵀQn: its mean is tr Q, its variance 2 tr Q²."""
    scipy_stats = pytest.importorskip("scipy.stats")
    unit = torch.eye(SIDE * SIDE, dtype=torch.float64).view(-1, SIDE, SIDE)
    along, across = (unit[:, :, 2:] - unit[:, :, :-2]) / 2, (unit[:, 2:] - unit[:, :-2]) / 2
    D = torch.cat([along.flatten(1), across.flatten(1)], 1)
    Q = D @ D.T
    mean, variance = float(Q.trace()), float(2 * Q.square().sum())
    tau = scipy_stats.gamma.ppf(1 - 1e-6, mean**2 / variance, scale=variance / mean)
    assert pytest.approx(tau, rel=1e-3) == TAU


def test_an_estimate_that_may_be_texture_is_lowered() -> None:
    random = torch.Generator().manual_seed(0)
    texture = 0.5 + 0.1 * torch.randn(48, 48, generator=random)
    texture = texture + 0.6 * texture.roll(1, 0) + 0.6 * texture.roll(1, 1)
    assert estimate_noise(noisy(texture, 2 / 255)) < 2 / 255
    assert estimate_noise(noisy(torch.full((48, 48), 0.5), 2 / 255)) == pytest.approx(2 / 255, rel=0.15)
