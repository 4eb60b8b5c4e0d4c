"""Denoising: what is given and what comes back, whatever removes the noise."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from pictures_to_restore import discs, error, noisy
from raising import Containing, raises
from whatwhere.errors import ImageError, InvalidSetting
from whatwhere.restoration import RestorationSpec, denoise, load_denoiser
from whatwhere.restoration.noise import NoiseEstimate
from whatwhere.restoration.white_noise import WhiteNoiseSettings, estimate_sigma

DENOISER = load_denoiser()


def picture() -> torch.Tensor:
    return discs(40, 44)[None, None]


def test_the_noise_is_estimated_for_each_image_where_it_is_not_given() -> None:
    truth = picture()
    quiet, loud = noisy(truth, 0.1), noisy(truth, 0.3)
    result = denoise(torch.cat([quiet, loud]), DENOISER)
    assert error(result[:1], truth) < 0.5 * error(quiet, truth)
    assert error(result[1:], truth) < 0.5 * error(loud, truth)


def test_without_noise_the_images_come_back_to_the_bit() -> None:
    truth = noisy(picture(), 0.1)
    assert denoise(truth, DENOISER, 0.0) is truth
    flat = torch.full((1, 1, 20, 20), 0.3)
    assert torch.equal(denoise(flat, DENOISER), flat)  # its estimated noise is 0
    mixed = torch.cat([flat, noisy(flat, 0.1)])
    assert torch.equal(denoise(mixed, DENOISER)[:1], flat)


def test_brightness_and_colour_apart_beat_channel_by_channel() -> None:
    truth = picture() * torch.tensor([1.0, 0.9, 0.8]).view(1, 3, 1, 1)
    given = noisy(truth, 0.15)
    planes = denoise(given.transpose(0, 1), DENOISER, 0.15).transpose(0, 1)
    assert error(denoise(given, DENOISER, 0.15), truth) < 0.95 * error(planes, truth)


def test_arrays_and_dtypes_come_back_as_they_were() -> None:
    given = noisy(picture(), 0.1).double().numpy()
    result = denoise(given, DENOISER, 0.1)
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.shape) == (given.dtype, given.shape)
    same = denoise(torch.from_numpy(given), DENOISER, 0.1)
    assert same.dtype == torch.float64
    np.testing.assert_array_equal(same.numpy(), result)


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_progress_counts_the_pixels(noise: float) -> None:
    done: list[int] = []
    denoise(
        picture(), DENOISER, noise, spec=RestorationSpec(quality=8, tile=24), progress=done.append
    )
    assert len(done) > 1
    assert sum(done) == 40 * 44


def test_what_cannot_be_denoised_raises_before_work_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    # calling it would be another error
    monkeypatch.setattr("whatwhere.restoration.denoiser.Denoiser.denoise", None)
    good = picture()
    for bad in (
        good[0, 0, 0],
        good.to(torch.complex64),
        np.array([["a"]]),
        [[0.5]],
        good / 0,
        good[:, :, :0],
        1e20 * good,
    ):
        with pytest.raises(ImageError, match=r"; expected|NaN"):
            denoise(bad, DENOISER, 0.1)
    for noise in (-0.1, float("nan"), float("inf"), True, "much", 10**400):
        with raises(InvalidSetting, given={"noise": noise}):
            denoise(good, DENOISER, noise)  # type: ignore[arg-type]


LEVELS = np.geomspace(2, 75, 10)


@pytest.mark.parametrize(
    ("estimated", "least", "most", "levels"),
    [
        (False, 16, 33, LEVELS),
        (True, 32, 49, LEVELS),
        (False, 16, 33, [12.2, 12.2, 12.2]),
        (False, 8, 9, 5 * [14]),
    ],
)
def test_never_worse_than_the_input_on_a_hundred_crops(
    estimated: bool, least: int, most: int, levels: Sequence[float]
) -> None:
    """Photographs with strong texture and σ from 2 to 75 of 255, given or estimated; 8 shifts are
    the least exact.

    Noise just above what is called faint, and crops of very few pixels, were worse once.
    """
    from sklearn.datasets import load_sample_image

    photographs = [
        torch.from_numpy(load_sample_image(f"{n}.jpg")[..., 1] / 255.0).float()
        for n in ("china", "flower")
    ]
    random = np.random.default_rng(0)
    for sigma in np.array(levels) / 255:
        height, width = random.integers(least, most, 2)
        corners = zip(
            random.integers(427 - height, size=10),
            random.integers(640 - width, size=10),
            strict=True,
        )
        crops = [
            photographs[k % 2][i : i + height, j : j + width] for k, (i, j) in enumerate(corners)
        ]
        truth = torch.stack(crops)[:, None]
        given = noisy(truth, sigma, seed=int(255 * sigma))
        result = denoise(
            given, DENOISER, None if estimated else float(sigma), spec=RestorationSpec(quality=8)
        )
        before, after = ((y - truth).square().mean((1, 2, 3)) for y in (given, result))
        assert float((after / before).max()) < 1 + 1e-5, (255 * sigma, height, width)


# Poisson noise: stable after the transform, and an inverse without bias ---------------------------


@pytest.mark.parametrize(("gain", "sigma"), [(1.0, 0.0), (0.02, 0.0), (0.05, 0.1)])
@pytest.mark.parametrize("counts", [6, 30, 200])
def test_the_noise_is_1_and_the_inverse_has_no_bias(
    gain: float, sigma: float, counts: float
) -> None:
    random = torch.Generator().manual_seed(0)
    photons = torch.poisson(torch.full((200_000,), float(counts)), generator=random)
    y = gain * photons + sigma * torch.randn(photons.shape, generator=random)
    noise = NoiseEstimate(gain, sigma)
    stable = noise.stabilise(y)
    assert abs(float(stable.std()) - 1) < 0.03
    restored = float(noise.restore_units(stable.mean()[None])) / gain
    assert abs(restored - counts) < 0.01 * counts + 0.02
    algebraic = float((stable.mean() / 2) ** 2 - 3 / 8 - (sigma / gain) ** 2)
    assert abs(restored - counts) < abs(algebraic - counts)


def test_poisson_noise_is_removed() -> None:
    truth = 30 * discs(56, 64)[None, None]
    counts = torch.poisson(truth, generator=torch.Generator().manual_seed(0))
    clean = denoise(counts, load_denoiser(), "poisson")
    assert error(clean, truth) < 0.45 * error(counts, truth)
    scaled = denoise(counts / 30, load_denoiser(), (1 / 30, 0.0))
    torch.testing.assert_close(30 * scaled, clean, rtol=0, atol=1e-2)


@pytest.mark.parametrize(
    "noise", ["Poisson", (0.0, 1.0), (1.0,), (1.0, -1.0), (1.0, 2.0, 3.0, 4.0), [1.0, 2.0]]
)
def test_noise_that_none_can_have_is_an_error(noise: object) -> None:
    with raises(InvalidSetting, given={"noise": noise}, expected=Containing("gain > 0")):
        denoise(torch.rand(1, 1, 8, 8), load_denoiser(), noise)  # type: ignore[arg-type]


# The estimate of noise, on pictures whose noise is known, and its threshold as a quantile ---------


@pytest.mark.parametrize("sigma", [5, 15, 50])
def test_the_noise_is_estimated_within_five_per_cent(sigma: int) -> None:
    y = noisy(discs(160, 200, sigma), sigma / 255, sigma)
    assert estimate_sigma([y]) == pytest.approx(sigma / 255, rel=0.05)


def test_the_threshold_of_texture_is_a_quantile_of_pure_noise() -> None:
    """The sum of squared derivatives is a quadratic form nᵀQn: its mean is tr Q, its variance 2 tr
    Q²."""
    scipy_stats = pytest.importorskip("scipy.stats")
    settings = WhiteNoiseSettings()
    side = settings.side
    unit = torch.eye(side * side, dtype=torch.float64).view(-1, side, side)
    along, across = (unit[:, :, 2:] - unit[:, :, :-2]) / 2, (unit[:, 2:] - unit[:, :-2]) / 2
    D = torch.cat([along.flatten(1), across.flatten(1)], 1)
    Q = D @ D.T
    mean, variance = float(Q.trace()), float(2 * Q.square().sum())
    tau = scipy_stats.gamma.ppf(1 - 1e-6, mean**2 / variance, scale=variance / mean)
    assert pytest.approx(tau, rel=1e-3) == settings.most_texture


def test_an_estimate_that_may_be_texture_is_lowered() -> None:
    random = torch.Generator().manual_seed(0)
    texture = 0.5 + 0.1 * torch.randn(48, 48, generator=random)
    texture = texture + 0.6 * texture.roll(1, 0) + 0.6 * texture.roll(1, 1)
    assert estimate_sigma([noisy(texture, 2 / 255)]) < 2 / 255
    assert estimate_sigma([noisy(torch.full((48, 48), 0.5), 2 / 255)]) == pytest.approx(
        2 / 255, rel=0.15
    )
