"""Poisson noise: stable after the transform, and an inverse without bias."""

import pytest
import torch

from pictures_to_restore import discs, error
from whatwhere.errors import SpecError
from whatwhere.restoration import denoise, load_denoiser
from whatwhere.restoration.anscombe import PoissonGaussian


@pytest.mark.parametrize(("gain", "sigma"), [(1.0, 0.0), (0.02, 0.0), (0.05, 0.1)])
@pytest.mark.parametrize("counts", [6, 30, 200])
def test_the_noise_is_1_and_the_inverse_has_no_bias(gain: float, sigma: float, counts: float) -> None:
    random = torch.Generator().manual_seed(0)
    photons = torch.poisson(torch.full((200_000,), float(counts)), generator=random)
    y = gain * photons + sigma * torch.randn(photons.shape, generator=random)
    noise = PoissonGaussian(gain, sigma)
    stable = noise.stabilise(y)
    assert abs(float(stable.std()) - 1) < 0.03
    restored = float(noise.restore_units(stable.mean()[None])) / gain
    assert abs(restored - counts) < 0.01 * counts + 0.02
    algebraic = float((stable.mean() / 2) ** 2 - 3 / 8 - (sigma / gain) ** 2)
    assert abs(restored - counts) < abs(algebraic - counts)


def test_poisson_noise_is_removed() -> None:
    truth = 30 * discs(56, 64)[None, None]
    counts = torch.poisson(truth, generator=torch.Generator().manual_seed(0))
    clean = denoise(load_denoiser(), counts, "poisson")
    assert error(clean, truth) < 0.45 * error(counts, truth)
    scaled = denoise(load_denoiser(), counts / 30, (1 / 30, 0.0))
    torch.testing.assert_close(30 * scaled, clean, rtol=0, atol=1e-2)


@pytest.mark.parametrize("noise", ["Poisson", (0.0, 1.0), (1.0,), (1.0, -1.0), (1.0, 2.0, 3.0), [1.0, 2.0]])
def test_noise_that_none_can_have_is_an_error(noise: object) -> None:
    with pytest.raises(SpecError, match="gain"):
        denoise(load_denoiser(), torch.rand(1, 1, 8, 8), noise)  # type: ignore[arg-type]
