from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from operators import KINDS, REGIONS, draw, weights_of
from whatwhere.formulas.fits import SWITCH
from whatwhere.latents import PoolingParams
from whatwhere.ops.pooling import (
    Regions,
    bound,
    fit,
    gaussian_weights,
    has_pairs,
    pair_weights,
)
from whatwhere.spec import Gaussian, Max, MomentFit, Sum


def elements(regions: Regions, region: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The elements of z that a region holds, counted out one by one."""
    starts = [j * t for j, t in zip(region, regions.stride, strict=True)]
    ranges = [
        range(a, min(a + s, n)) for a, s, n in zip(starts, regions.size, regions.shape, strict=True)
    ]
    return list(itertools.product(*ranges))


def literal_weights(
    regions: Regions, mu: list[float], gamma: list[float], region: tuple
) -> dict[tuple, float]:
    """Eqns. gauss and normGauss for one region, as printed: w = √a / √Σa over the elements that
    exist."""
    a = {}
    for i in elements(regions, region):
        exponent = 0.0
        for axis, m, g in zip(regions.axes, mu, gamma, strict=True):
            x = i[axis] - region[axis] * regions.stride[axis] - (regions.size[axis] - 1) / 2
            exponent += g / 2 * (x - m) ** 2
        a[i] = math.exp(-exponent)
    total = sum(a.values())
    return {i: math.sqrt(value / total) for i, value in a.items()}


@pytest.mark.parametrize("name", REGIONS)
def test_unpooling_is_the_printed_formula(name: str) -> None:
    regions = REGIONS[name]
    shape = (1, len(regions.axes), *regions.grid)
    theta, p = (
        PoolingParams(draw(*shape, seed=1) / 2, 4 * draw(*shape, seed=2).abs()),
        draw(1, *regions.grid, seed=3),
    )
    expected = torch.zeros(1, *regions.shape, dtype=torch.float64)
    for j in itertools.product(*map(range, regions.grid)):
        mu, gamma = theta.mu[0, :, *j].tolist(), theta.gamma[0, :, *j].tolist()
        for i, w in literal_weights(regions, mu, gamma, j).items():
            expected[0, *i] += w * p[0, *j]
    torch.testing.assert_close(gaussian_weights(theta, regions).unpool(p), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", [name for name, regions in REGIONS.items() if regions.stride == regions.size]
)
def test_pooling_inverts_unpooling(name: str, kind: str) -> None:
    w, p = weights_of(kind, REGIONS[name]), draw(2, *REGIONS[name].grid)
    torch.testing.assert_close(w.pool(w.unpool(p)), p, rtol=1e-12, atol=1e-12)


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 2),
)
def test_every_element_has_a_region_and_unit_weights(
    s: int, t: int, b: int, h: int, w: int, maps: int
) -> None:
    regions = Regions.of((b * maps, h, w), s, min(s, t), maps)
    flat = fit(Sum(), torch.zeros(1, *regions.shape, dtype=torch.float64), regions)
    weights = gaussian_weights(flat, regions)
    ones = torch.ones(1, *regions.grid, dtype=torch.float64)
    assert (weights.unpool(ones) > 0).all()  # every element of z is reached
    squared = [w.square().sum((2, 3, 4)) for w in weights.factors]
    for total in squared:
        torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("gamma", [0.0, 1e-8, 1.0, 30.0, 1e3])
def test_gradient_is_autograds(name: str, gamma: float) -> None:
    regions = REGIONS[name]
    shape = (2, len(regions.axes), *regions.grid)
    theta = PoolingParams(
        (draw(*shape, seed=1) / 3).requires_grad_(),
        (gamma * (1 + draw(*shape, seed=2).abs())).requires_grad_(),
    )
    p, error = draw(2, *regions.grid, seed=3), draw(2, *regions.shape, seed=4)
    weights = gaussian_weights(theta, regions)
    expected = torch.autograd.grad(torch.sum(weights.unpool(p) * error), (theta.mu, theta.gamma))
    found = weights.gradient(error, p, theta)
    torch.testing.assert_close((found.mu, found.gamma), expected, rtol=1e-10, atol=1e-10)


def test_gradient_of_features_that_are_zero_is_zero() -> None:
    regions = REGIONS["2×2"]
    theta = fit(Gaussian(), draw(1, *regions.shape), regions, MomentFit(0.01, 100))
    weights, p = gaussian_weights(theta, regions), torch.zeros(1, *regions.grid).double()
    found = weights.gradient(draw(1, *regions.shape), p, theta)
    assert (found.mu == 0).all()
    assert (found.gamma == 0).all()


@pytest.mark.parametrize(
    "name", ["2×2", "3×3 ragged", "2 maps, 2×2 ragged", "3×3 stride 2", "2×3 ragged"]
)
@pytest.mark.parametrize("power", [1, 2])
def test_moments_are_those_of_the_signal(name: str, power: int) -> None:
    regions, signal = REGIONS[name], draw(1, *REGIONS[name].shape).abs()
    theta = fit(Gaussian(), signal, regions, MomentFit(0.0, 1e6, power))
    for j in itertools.product(*map(range, regions.grid)):
        inside = elements(regions, j)
        s = torch.tensor([float(signal[0, *i]) ** power for i in inside], dtype=torch.float64)
        for a, axis in enumerate(regions.axes):
            x = torch.tensor(
                [
                    i[axis] - j[axis] * regions.stride[axis] - (regions.size[axis] - 1) / 2
                    for i in inside
                ]
            ).double()
            mean = (s * x).sum() / s.sum()
            variance = (s * (x - mean) ** 2).sum() / s.sum()
            torch.testing.assert_close(theta.mu[0, a, *j], mean)
            torch.testing.assert_close(theta.gamma[0, a, *j], (1 / variance).clamp(max=1e6))


def test_moments_of_an_empty_region_are_flat_and_centred() -> None:
    regions = REGIONS["3×3 ragged"]
    theta = fit(Gaussian(), torch.zeros(1, *regions.shape), regions, MomentFit(0.25, 100))
    assert (theta.mu == 0).all()
    assert (theta.gamma == 0.25).all()


@pytest.mark.parametrize("contrast", [1e-30, 1e-3, 1e3, 1e30])
def test_moments_do_not_depend_on_contrast(contrast: float) -> None:
    regions, signal = REGIONS["2×2"], draw(1, *REGIONS["2×2"].shape).float()
    plain, scaled = (
        fit(Gaussian(), c * signal, regions, MomentFit(0.01, 100)) for c in (1, contrast)
    )
    torch.testing.assert_close(
        (scaled.mu, scaled.gamma), (plain.mu, plain.gamma), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", REGIONS)
def test_max_pooling_takes_the_largest(name: str) -> None:
    regions = REGIONS[name]
    signal = draw(2, *regions.shape, seed=9)
    pooled = gaussian_weights(fit(Max(), signal, regions), regions).pool(signal)
    for n in range(2):
        for j in itertools.product(*map(range, regions.grid)):
            values = [float(signal[n, *i]) for i in elements(regions, j)]
            assert float(pooled[n, *j]) == max(values, key=abs)  # exactly: the weights are one-hot


def test_max_pooling_is_torchs() -> None:
    signal = draw(2, 3, 6, 8).abs()
    regions = Regions.of((3, 6, 8), 2)
    pooled = gaussian_weights(fit(Max(), signal, regions), regions).pool(signal)
    assert torch.equal(pooled, torch.nn.functional.max_pool2d(signal, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_switches_are_one_hot_in_every_dtype(dtype: torch.dtype) -> None:
    regions, signal = REGIONS["3×3 ragged"], draw(1, 2, 7, 8).to(dtype)
    for w in gaussian_weights(fit(Max(), signal, regions), regions).factors:
        assert set(w.unique().tolist()) == {0.0, 1.0}


def test_sum_pooling_sums() -> None:
    signal = draw(2, 3, 6, 8)
    regions = Regions.of((3, 6, 8), 2)
    pooled = gaussian_weights(fit(Sum(), signal, regions), regions).pool(signal)
    # weights ½, so Σ w² = 1
    torch.testing.assert_close(pooled, 2 * torch.nn.functional.avg_pool2d(signal, 2))


def test_two_elements_are_one_sigmoid() -> None:
    mu, gamma = draw(1, 2, 1, 3, 4), draw(1, 2, 1, 3, 4, seed=1).abs()
    weights = gaussian_weights(PoolingParams(mu, gamma), Regions.of((1, 6, 8), 2))
    upper = torch.sigmoid(gamma * mu).sqrt()
    torch.testing.assert_close(weights.factors[0][:, :, 0, 1, 0], upper[:, 0])
    torch.testing.assert_close(weights.factors[1][:, :, 0, 0, 1], upper[:, 1])


def test_bounds() -> None:
    regions = Regions.of((4, 4, 6), 3, maps=2)
    theta = PoolingParams(
        torch.full((1, 3, *regions.grid), 9.0), torch.full((1, 3, *regions.grid), 1e9)
    )
    kept = bound(theta, regions, MomentFit(0.5, 50))
    assert kept.mu[0, :, 0, 0, 0].tolist() == [0.5, 1.0, 1.0]  # half of what the region spans
    assert (kept.gamma == 50).all()
    assert (bound(theta.map(torch.neg), regions, MomentFit(0.5, 50)).gamma == 0.5).all()


# Pooling in 2 × 2 regions, against the general form and against its own definition ----------------


PAIRS = Regions.of((3, 8, 6), 2)


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
        lambda theta, p, z, U: U.unpool(p),
        lambda theta, p, z, U: U.pool(z),
        lambda theta, p, z, U: U.gradient(z, p, theta).mu,
        lambda theta, p, z, U: U.gradient(z, p, theta).gamma,
    ],
    ids=["unpool", "pool", "gradient of μ", "gradient of γ"],
)
def test_values_and_derivatives_are_those_of_the_general_form(run) -> None:
    found = []
    for make in (gaussian_weights, pair_weights):
        theta, p, z = example()
        out = run(theta, p, z, make(theta, PAIRS))
        (
            out * torch.sin(torch.arange(out.numel(), dtype=torch.float64)).view_as(out)
        ).sum().backward()
        found.append(
            [out.detach(), *(x.grad for x in (theta.mu, theta.gamma, p, z) if x.grad is not None)]
        )
    assert len(found[0]) == len(found[1]) >= 4
    for general, pairs in zip(*found, strict=True):
        torch.testing.assert_close(pairs, general, rtol=1e-9, atol=1e-12)


def test_the_gradient_is_the_derivative_of_the_weights() -> None:
    theta, p, z = example()
    (pair_weights(theta, PAIRS).unpool(p) * z.detach()).sum().backward()
    with torch.no_grad():
        gradient = pair_weights(theta, PAIRS).gradient(z, p, theta)
    torch.testing.assert_close(gradient.mu, theta.mu.grad)
    torch.testing.assert_close(gradient.gamma, theta.gamma.grad)


def test_only_regions_of_two_by_two_inside_the_map_are_pairs() -> None:
    assert has_pairs(PAIRS)
    others = [
        Regions.of((3, 8, 6), 3),
        Regions.of((3, 7, 6), 2),
        Regions.of((3, 8, 6), 2, 1),
        Regions.of((4, 8, 6), 2, maps=2),
    ]
    assert not any(has_pairs(regions) for regions in others)
