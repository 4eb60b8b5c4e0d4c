"""The noise of cameras, against noise that was made and against textures without noise."""

import pytest
import torch

import whatwhere as ww
from pictures_to_restore import blurred, discs, error
from whatwhere.restoration import NoiseEstimate, denoise, estimate_noise, load_denoiser
from whatwhere.restoration.camera import (
    CameraSettings,
    camera_noise,
    share_of_camera_noise,
    share_without_direction,
)

DENOISER = load_denoiser()


def camera_picture() -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth colour picture, and the same with noise as interpolated colours have it."""
    smooth = torch.nn.functional.avg_pool2d(discs(192, 192, 4)[None].double(), 9, 1, 4)[0]
    truth = 0.2 + 0.5 * smooth * torch.tensor([1.0, 0.8, 0.6], dtype=torch.float64)[:, None, None]
    light = blurred(0.75, (192, 192), 1)
    colours = torch.stack([blurred(1.2, (192, 192), seed) for seed in (2, 3, 4)])
    return truth, truth + 0.025 * light + 0.02 * colours


def test_noise_of_a_camera_is_recognised_in_flat_blocks_and_removed() -> None:
    truth, given = camera_picture()
    noise = estimate_noise(given)
    covariance = torch.tensor(noise.covariance)
    assert noise.sigma == pytest.approx((0.025**2 + 0.02**2) ** 0.5, rel=0.15)
    # the brightness is common to all channels
    assert float(covariance[0, 1] / covariance[0, 0]) == pytest.approx(0.61, abs=0.15)
    spec = ww.restoration.RestorationSpec(quality=8)
    clean = denoise(given[None], DENOISER, spec=spec)[0]
    assert error(clean, truth) < 0.5 * error(given, truth)


def test_a_smooth_colour_picture_and_a_coarse_texture_have_no_noise() -> None:
    truth, _ = camera_picture()
    assert estimate_noise(truth).is_zero
    texture = blurred(1.2, (192, 192)).sign() * blurred(0.8, (192, 192), 1).abs()
    assert not estimate_noise(truth + 0.05 * texture).correlation


def test_removed_noise_has_no_direction_and_removed_stripes_have_one() -> None:
    """Noise blurred as by a camera is removed, oriented texture stays."""
    noise = torch.stack([blurred(0.8, (120, 132), seed) for seed in range(3)])
    y, x = torch.meshgrid(torch.arange(120.0), torch.arange(132.0), indexing="ij")
    stripes = torch.sin(1.2 * torch.hypot(y - 60, x - 66)).expand(3, -1, -1)
    assert share_without_direction(noise) == 1
    assert share_without_direction(1000 * noise) == 1
    assert share_without_direction(stripes) == 0
    assert share_without_direction(stripes + 0.1 * noise) == 0
    # nothing to measure
    assert share_without_direction(0 * noise) == 1
    assert share_without_direction(noise[:, :9, :9]) == 1


def test_a_part_is_removed_where_the_estimate_may_be_texture() -> None:
    """Noise everywhere; less than the estimate says; and detail that was removed along edges."""
    noise = torch.stack([blurred(0.8, (128, 136), seed) for seed in range(3)])
    clean = discs(128, 136, 6).double().expand(3, -1, -1)
    sigma = float(noise.mean(0).std())
    assert share_of_camera_noise(noise, clean, sigma) == pytest.approx(0.9)
    assert share_of_camera_noise(noise, clean, 2 * sigma) == pytest.approx(0.5)
    edges = torch.zeros(128, 136, dtype=torch.float64)
    edges[1:, 1:] = (clean[0].diff(dim=0)[:, 1:].abs() + clean[0].diff(dim=1)[1:].abs()) > 0.01
    near = torch.nn.functional.max_pool2d(edges[None], 9, 1, 4)[0]
    assert share_of_camera_noise(noise * (0.2 + 2 * near), clean, sigma) <= 0.9 * 0.7 + 1e-9
    assert share_of_camera_noise(noise, clean, sigma, 0.3) == pytest.approx(0.3)
    # nothing to measure
    assert share_of_camera_noise(0 * noise, clean, sigma) <= 0.5
    assert share_of_camera_noise(noise[:, :7, :7], clean[:, :7, :7], sigma) > 0.4


def test_half_is_removed_of_noise_whose_colours_are_as_sharp_as_its_brightness() -> None:
    """A camera interpolates colours, so that their noise is blurred more."""
    truth, given = camera_picture()
    assert estimate_noise(given).removed > 0.7
    sharp = torch.stack([blurred(0.75, (192, 192), seed) for seed in (2, 3, 4)])
    noise = estimate_noise(truth + 0.03 * sharp)
    assert noise.correlation == pytest.approx(0.75, abs=0.16)
    assert noise.removed == 0.5
    assert "may be texture, is removed by 50%" in noise.summary()
    clean = denoise((truth + 0.03 * sharp)[None], DENOISER, noise)[0]
    left = error(clean, truth) / error(0.03 * sharp, 0 * truth)
    assert 0.45 < left < 0.65


def test_a_texture_that_was_taken_for_noise_stays() -> None:
    y, x = torch.meshgrid(torch.arange(128.0), torch.arange(128.0), indexing="ij")
    grass = 0.5 + 0.03 * torch.sin(1.1 * torch.hypot(y + 40, x - 40)).double()
    given = grass.expand(3, -1, -1) + 0.004 * torch.stack(
        [blurred(0.8, (128, 128), k) for k in (1, 2, 3)]
    )
    rows = tuple(tuple(0.03**2 * float(i == j) for j in range(3)) for i in range(3))
    noise = NoiseEstimate(sigma=0.03, correlation=0.8, covariance=rows)
    spec = ww.restoration.RestorationSpec(quality=8)
    clean = denoise(given[None], DENOISER, noise, spec=spec)[0]
    assert error(clean, grass) <= error(given, grass)


@pytest.mark.parametrize("sigma", [0.04, 0.1])
def test_white_noise_of_colours_is_no_noise_of_a_camera(sigma: float) -> None:
    """The classifier takes it for one, but the smallest eigenvalue explains all of it."""
    smooth = torch.stack([discs(144, 144, seed) for seed in (4, 5, 6)])
    smooth = torch.nn.functional.avg_pool2d(smooth[None], 5, 1, 2)[0].double()
    random = torch.Generator().manual_seed(0)
    image = 0.2 + 0.5 * smooth + sigma * torch.randn(smooth.shape, generator=random).double()
    noise = estimate_noise(image)
    assert (noise.correlation, noise.removed) == (0, 1)
    assert noise.sigma == pytest.approx(sigma, rel=0.06)
    wide = image.max() - image.min()
    found = camera_noise([(image - image.min()) / wide], CameraSettings())
    assert found is not None
    assert found.sigma * float(wide) == pytest.approx(sigma, rel=0.15)
