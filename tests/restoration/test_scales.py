"""From coarse to fine: halving and enlarging, λ and steps, and a low-pass from the smaller scale."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from pictures_to_restore import error, model, noisy, picture
from whatwhere.restoration.scales import Restorer, enlarge, halve, inference_settings, signal_strength
from whatwhere.spec.restoration import RestorationSpec


def test_the_mean_of_the_known_pixels_of_2x2_and_the_noise_that_is_left() -> None:
    torch.manual_seed(0)
    images, mask = torch.rand(2, 1, 6, 7), (torch.rand(2, 1, 6, 7) > 0.4).float()
    small, noise, share = halve(images, 0.2, mask)
    assert small.shape == (2, 1, 3, 4)
    assert noise == 0.1
    assert share is not None
    block, known = images[1, 0, 2:4, 4:6], mask[1, 0, 2:4, 4:6]
    assert float(small[1, 0, 1, 2]) == pytest.approx(float((block * known).sum() / known.sum().clamp(min=1)), abs=1e-6)
    assert float(share[1, 0, 1, 2]) ** 2 == pytest.approx(float(known.mean()), abs=1e-6)
    assert torch.allclose(halve(images[..., :6], 0.2, None)[0], F.avg_pool2d(images[..., :6], 2))


def test_halving_halves_the_noise() -> None:
    noise = noisy(torch.zeros(1, 1, 200, 200), 0.2)
    small, left, _ = halve(noise, 0.2, None)
    assert float(small.std()) == pytest.approx(left, rel=0.02)


def test_enlarging_keeps_constants_and_sizes() -> None:
    assert torch.allclose(enlarge(torch.full((1, 1, 4, 5), 0.3), 7, 10), torch.full((1, 1, 7, 10), 0.3))


def test_threshold_and_steps_by_the_share_of_noise() -> None:
    spec = RestorationSpec(threshold=1.3)
    settings = inference_settings(spec, 0.1, 0.2)  # half of the signal is noise
    assert 1 / settings.lam == pytest.approx(1.8 * 0.1)
    assert settings.steps == 20
    assert inference_settings(spec, 0.1, 0.1).steps == 8
    assert inference_settings(spec, 0.001, 1.0).steps == 60
    assert inference_settings(spec, 0.1, 0.0).steps == 8
    assert inference_settings(RestorationSpec(steps=33), 0.1, 0.2).steps == 33
    assert settings.momentum


def test_the_strength_of_a_signal_is_that_of_its_known_pixels() -> None:
    signal = torch.tensor([3.0, 4.0, 100.0, 0.0]).view(1, 1, 2, 2)
    mask = torch.tensor([1.0, 0.5, 0.0, 1.0]).view(1, 1, 2, 2)
    assert signal_strength(signal, mask) == pytest.approx((25 / 3) ** 0.5)


@pytest.mark.parametrize(("scales", "pool"), [(1, 1), (2, 1), (3, 2)])
def test_progress_counts_every_tile(scales: int, pool: int) -> None:
    done: list[int] = []
    spec = RestorationSpec(steps=1, scales=scales, tile=48, overlap=16)
    restorer = Restorer(model(pool=pool), spec, "reference", done.append)
    restorer.restore(picture(90, 80), 0.1)
    assert sum(done) == restorer.count_tiles(1, 90, 80)
    assert len(done) > 1


def test_a_smaller_scale_fills_a_hole_that_the_lowpass_cannot_reach() -> None:
    truth = 0.5 + 0.4 * torch.linspace(-1, 1, 128).expand(1, 1, 128, 128)
    mask = torch.ones_like(truth)
    mask[:, :, 50:78, 20:60] = 0
    hole = mask == 0
    one, three = (
        Restorer(model(), RestorationSpec(steps=5, scales=s), "reference").restore(truth * mask, 0.01, mask)
        for s in (1, 3)
    )
    assert error(three[hole], truth[hole]) < 0.5 * error(one[hole], truth[hole])


def test_a_smaller_scale_takes_a_third_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, int]] = []

    def infer(net, images, settings, **rest):  # type: ignore[no-untyped-def]
        taken.append((images.shape[3], settings.steps))
        return SimpleNamespace(reconstruction=images)

    monkeypatch.setattr("whatwhere.restoration.scales.infer", infer)
    Restorer(model(), RestorationSpec(steps=24, scales=3)).restore(picture(128, 128), 0.1)
    assert taken == [(32, 3), (64, 8), (128, 24)]


def test_the_strength_of_details_is_that_of_known_pixels_without_their_lowpass() -> None:
    wave = 0.3 * torch.cos(torch.pi * torch.arange(64.0)).expand(1, 1, 64, 64)
    mask = torch.ones_like(wave)
    mask[:, :, 20:40] = 0
    restorer = Restorer(model(), RestorationSpec())
    assert restorer.detail_strength(0.5 + torch.where(mask > 0, wave, 9.0), mask) == pytest.approx(0.3, rel=0.02)
    assert restorer.detail_strength(torch.full_like(wave, 0.5), mask) < 1e-6


def test_tiles_leave_no_seams() -> None:
    net, images = model(kind="none"), noisy(picture(96, 48) - 0.5, 0.1)
    whole, tiled = (
        Restorer(net, RestorationSpec(steps=10, **tiles), "reference").restore(images, 0.1)
        for tiles in ({}, {"tile": 48, "overlap": 24})
    )
    assert error(tiled, whole) < 0.02 * error(whole, torch.zeros_like(whole))
    steps = (tiled[..., 1:, :] - tiled[..., :-1, :]).abs().mean((0, 1, 3))  # between each row and the next
    true_steps = (whole[..., 1:, :] - whole[..., :-1, :]).abs().mean((0, 1, 3))
    assert (steps - true_steps).abs().max() < 0.1 * true_steps.mean()


def test_tiles_without_a_known_pixel_are_accepted() -> None:
    images = picture(70, 60) - 0.5
    mask = torch.ones_like(images)
    mask[:, :, :40, :40] = 0
    restorer = Restorer(model(kind="none"), RestorationSpec(steps=5, tile=32, overlap=16), "reference")
    assert restorer.restore(images * mask, 0.1, mask).isfinite().all()
