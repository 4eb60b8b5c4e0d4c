"""Frames that are averaged: less noise where they show the same, and nothing twice where they do
not."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pictures_to_restore import discs, error
from tiny_run import whatwhere
from whatwhere.restoration import NoiseEstimate, RestorationSpec, denoise
from whatwhere.restoration.restore import frame_window
from whatwhere.restoration.stacks import find_shift, merge_frames, scale_to, shifted

SPEC = RestorationSpec(quality=8, frames=4)
ONE = RestorationSpec(quality=8)


def film(shifts: list[tuple[int, int]], sigma: float = 0.15) -> tuple[torch.Tensor, torch.Tensor]:
    """Crops [F, 96, 96] of a picture, from places that move, and the same with noise."""
    scene = 0.2 + 0.6 * discs(128, 128, 3)
    truth = torch.stack([scene[16 + y : 112 + y, 16 + x : 112 + x] for y, x in shifts])
    random = torch.Generator().manual_seed(0)
    return truth, truth + sigma * torch.randn(truth.shape, generator=random)


@pytest.mark.parametrize("shifts", [[(0, 0)] * 4, [(0, 0), (1, -2), (-3, 1), (2, 3)]])
def test_a_film_has_less_noise_than_its_frames(shifts: list[tuple[int, int]]) -> None:
    truth, given = film(shifts)
    clean = denoise(given, noise=0.15, spec=SPEC)
    single = denoise(given, noise=0.15, spec=ONE)
    gain = 20 * np.log10(error(single, truth) / error(clean, truth))
    assert gain > (2.0 if shifts[1] == (0, 0) else 1.5)


def test_what_moves_by_itself_is_seen_once() -> None:
    """A bright disc jumps from frame to frame over a scene that stands still."""
    truth, _ = film([(0, 0)] * 4)
    rows, columns = torch.meshgrid(torch.arange(96), torch.arange(96), indexing="ij")
    for number, place in enumerate((20, 40, 60, 80)):
        truth[number][(rows - 48) ** 2 + (columns - place) ** 2 < 36] = 1.0
    given = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))
    clean = denoise(given, noise=0.1, spec=SPEC)
    single = denoise(given, noise=0.1, spec=ONE)
    assert error(clean, truth) < error(single, truth)
    for place in (40, 60, 80):
        spot = (rows - 48) ** 2 + (columns - place) ** 2 < 25
        assert float((clean[0] - truth[0])[spot].abs().mean()) < 0.06


def test_frames_are_moved_by_parts_of_a_pixel() -> None:
    scene = torch.nn.functional.avg_pool2d(discs(128, 128, 3)[None], 9, 1, 4)[0].double()
    spectrum = torch.fft.fft2(scene)
    rows, columns = (torch.fft.fftfreq(128, dtype=torch.float64) for _ in range(2))
    phase = torch.exp(-2j * torch.pi * (1.3 * rows[:, None] - 2.6 * columns))
    moved = torch.fft.ifft2(spectrum * phase).real
    back, inside, kept = shifted(moved[None], find_shift(moved[None], scene[None]))
    inner = slice(8, -8)
    assert error(back[0, inner, inner], scene[inner, inner]) < 0.004
    assert 0.3 < kept < 1
    assert float(inside[inner, inner].min()) == 1


def test_brightness_is_equalised_and_the_deviation_is_true() -> None:
    truth, given = film([(0, 0)] * 4, 0.1)
    noise = NoiseEstimate(sigma=0.1)
    bleached = given * torch.tensor([1.0, 0.9, 1.1, 0.8])[:, None, None]
    scaled, factors = scale_to(bleached[:, None], 0, noise)
    assert factors == pytest.approx([1, 1 / 0.9, 1 / 1.1, 1 / 0.8], rel=0.02)
    merged = merge_frames(scaled, 0, noise, factors)
    left = (merged.mean[0] - truth[0])[4:-4, 4:-4] / 0.1
    assert float(left.std()) == pytest.approx(float(merged.deviation.mean()), rel=0.15)
    assert float(merged.deviation.mean()) < 0.6
    # the brightness of a result is that of all its frames
    clean = denoise(bleached, noise=0.1, spec=SPEC)
    for frame in clean:
        assert float(frame.mean()) == pytest.approx(0.95 * float(truth[0].mean()), rel=0.01)


def test_an_object_that_enters_does_not_change_the_brightness_of_the_rest() -> None:
    _, given = film([(0, 0)] * 4, 0.05)
    given[0, 30:60, 30:60] = 3.0
    _, factors = scale_to(given[:, None], 0, NoiseEstimate(sigma=0.05))
    assert factors == pytest.approx([1.0] * 4, abs=0.02)


def test_few_photons_are_averaged_before_their_noise_is_made_even() -> None:
    """The mean of roots of few photons says less than the root of their mean."""
    truth = (0.2 + 2 * discs(96, 96, 3)).expand(4, -1, -1)
    counts = torch.poisson(truth, generator=torch.Generator().manual_seed(0))
    noise = NoiseEstimate(gain=1.0)
    merged = merge_frames(counts[:, None].double(), 0, noise, [1.0] * 4)
    roots = noise.restore_units(noise.stabilise(counts).mean(0))
    assert error(merged.mean[0], truth[0]) < 0.95 * error(roots, truth[0])
    assert float(merged.deviation.median()) == pytest.approx(0.5, abs=0.06)
    half = NoiseEstimate(0.4, 0.2, 0.1).averaged(0.5)
    for x in (0.3, 1.0):
        assert half.variance_at(x) == pytest.approx(NoiseEstimate(0.4, 0.2, 0.1).variance_at(x) / 4)


def test_the_window_of_frames_stays_in_the_film() -> None:
    assert [frame_window(i, 6, 3) for i in range(6)] == [
        (0, 3),
        (0, 3),
        (1, 4),
        (2, 5),
        (3, 6),
        (3, 6),
    ]
    assert frame_window(1, 2, 5) == (0, 2)


def test_the_command_restores_a_film(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    truth, given = film([(0, 0)] * 4)
    pixels = (given.clamp(0, 1) * 255).round().byte().numpy()
    tifffile.imwrite(tmp_path / "in.tif", pixels, photometric="minisblack")
    noise = ("--noise", 0.15, "--device", "cpu", "--set", "quality=8")
    for name, frames in (("one", ()), ("film", ("--frames", 4))):
        whatwhere(
            "denoise", tmp_path / "in.tif", "--out", tmp_path / f"{name}.tif", *noise, *frames
        )
    one, many = (tifffile.imread(tmp_path / f"{name}.tif") / 255 for name in ("one", "film"))
    assert many.shape == (4, 96, 96)
    assert np.square(many - truth.numpy()).mean() < 0.7 * np.square(one - truth.numpy()).mean()
