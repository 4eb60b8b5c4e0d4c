"""The trained denoiser: its products against a convolution, its tiles, its guarantees."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks.restoration.never_worse import halftone
from pictures_to_restore import discs as picture
from pictures_to_restore import noisy
from whatwhere.errors import SpecError
from whatwhere.restoration import RestorationSpec, denoise, load_denoiser
from whatwhere.restoration.denoiser import (
    BLOCK,
    Denoiser,
    from_blocks,
    grid_places,
    overlap_add,
    reflect,
    share_at_most_the_noise,
    share_of_noise,
    squares,
    to_blocks,
)

DENOISER = load_denoiser()


def error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).square().mean())


def kernels(matrices: torch.Tensor) -> torch.Tensor:
    """Rows [G, M, 4 s²] as the filters of a convolution, [G, M, 1, 16, 16]."""
    blocks = matrices.double().reshape(*matrices.shape[:2], 2, 2, BLOCK, BLOCK)
    return blocks.transpose(3, 4).reshape(*matrices.shape[:2], 1, 16, 16)


@pytest.mark.parametrize("groups", [1, 3])
def test_one_grid_is_strided_sparse_coding(groups: int) -> None:
    """The steps, written with convolutions of stride 8 and filters of 16 × 16 pixels, in
    float64."""
    y, sigma = noisy(picture(48, 40), 0.1).double() - 0.5, 0.1
    # filters that differ from group to group
    factors = torch.linspace(0.8, 1, groups)[:, None, None]
    d = replace(
        DENOISER, analysis=DENOISER.analysis[:1] * factors, residual=DENOISER.residual[:1] * factors
    )
    A, B, C = kernels(d.analysis.mT), kernels(d.residual), kernels(d.synthesis[None])[0]
    t, g = (
        sigma * d.at_level(sigma, d.threshold).double().exp(),
        d.at_level(sigma, d.gain).double().exp(),
    )
    z: torch.Tensor | None = None
    for k, threshold in enumerate(t):
        group = k * groups // len(t)
        e = (
            y[None, None]
            if z is None
            else y[None, None] - F.conv_transpose2d(z, B[group], stride=8)
        )
        u = F.conv2d(e, A[group], stride=8) + (0 if z is None else z)
        z = u.sign() * (u.abs() - threshold[:, None, None]).clamp(min=0)
    assert z is not None
    expected = F.conv_transpose2d(z * g[:, None, None], C, stride=8)[0, 0]
    ours = from_blocks(d._steps(to_blocks(y.float())[None], t.float(), g.float())[0])
    torch.testing.assert_close(ours.double(), expected, rtol=0, atol=2e-5)


def test_overlap_add_is_the_adjoint_of_squares() -> None:
    x, z = (
        torch.randn(2, 5, 4, 64, dtype=torch.float64),
        torch.randn(2, 4, 3, 256, dtype=torch.float64),
    )
    torch.testing.assert_close((squares(x) * z).sum(), (x * overlap_add(z)).sum())


def test_a_level_between_two_is_interpolated_and_beyond_the_ends_the_nearest() -> None:
    low, high = DENOISER.levels[1], DENOISER.levels[2]
    middle = DENOISER.at_level(float((low * high).sqrt()), DENOISER.gain)
    torch.testing.assert_close(middle, (DENOISER.gain[1] + DENOISER.gain[2]) / 2)
    torch.testing.assert_close(DENOISER.at_level(1e-4, DENOISER.gain), DENOISER.gain[0])
    torch.testing.assert_close(DENOISER.at_level(3.0, DENOISER.gain), DENOISER.gain[-1])


@pytest.mark.parametrize("shifts", [4, 8, 16, 32, 64])
def test_the_places_of_the_grid_are_spread_evenly(shifts: int) -> None:
    """Every one has its nearest neighbour, around the block's edges, at the distance that so many
    allow."""
    places = np.array(grid_places(shifts))
    assert len(set(map(tuple, places))) == shifts
    away = (places[:, None] - places) % BLOCK
    distances = np.hypot(*np.moveaxis(np.minimum(away, BLOCK - away), -1, 0)) + np.diag(
        [np.inf] * shifts
    )
    np.testing.assert_allclose(distances.min(1), BLOCK / math.sqrt(shifts))
    others = {
        place for first in range(0, 4 * shifts, shifts) for place in grid_places(shifts, first)
    }
    assert len(others) == min(64, 4 * shifts)


def test_the_result_does_not_depend_on_tiles() -> None:
    y = noisy(picture(150, 90), 0.1)
    whole, tiled = (DENOISER.denoise(y, 0.1, 16, tile) for tile in (512, 48))
    torch.testing.assert_close(whole, tiled, rtol=0, atol=1e-4)


def test_the_result_does_not_depend_on_the_batch() -> None:
    a, b = noisy(picture(40, 40), 0.1)[None, None], noisy(picture(40, 40, 1), 0.1)[None, None]
    both = denoise(torch.cat([a, b]), DENOISER, 0.1)
    torch.testing.assert_close(both[1:], denoise(b, DENOISER, 0.1), rtol=0, atol=1e-6)


def test_small_images_are_restored_at_the_same_time_as_one_by_one() -> None:
    images = torch.stack([noisy(picture(20, 24, seed), 0.1) for seed in range(3)])[:, None]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = denoise(images, DENOISER, 0.1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    alone = torch.cat([denoise(image[None], DENOISER, 0.1) for image in images])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 30), (7, 9), (17, 64)])
def test_every_size(height: int, width: int) -> None:
    y = noisy(picture(height, width), 0.05)[None, None]
    clean = denoise(y, DENOISER, 0.05)
    assert clean.shape == y.shape
    assert clean.isfinite().all()


def test_noise_0_returns_the_picture() -> None:
    y = noisy(picture(20, 20), 0.1)[None, None]
    assert denoise(y, DENOISER, 0.0) is y


def test_fine_texture_that_looks_like_noise_is_given_back() -> None:
    """Where more is taken off than the noise, the error is smaller with a part of it put back."""
    clean = 0.5 + 0.2 * torch.rand(40, 48, generator=torch.Generator().manual_seed(1))
    y, sigma = noisy(clean, 5 / 255), 5 / 255
    smooth = DENOISER.denoise(y, 0.2)
    share = share_at_most_the_noise(y - smooth, sigma)
    kept = y.lerp(smooth, share)
    assert share == pytest.approx(sigma**2 / error(y, smooth), rel=1e-3)
    assert error(kept, clean) < error(smooth, clean)
    assert share_at_most_the_noise(y - smooth, 1.0) == 1


def test_noise_cut_off_at_bright_parts_is_removed_from_all_others() -> None:
    """Saturated discs do not keep the noise of the ground."""
    truth = 0.3 + 0.9 * (picture(64, 64, 3) > 0.6)
    ground, sigma = truth < 0.5, 0.1
    y = noisy(truth, sigma)
    cut_off = y.clamp(0, 1)
    assert float((cut_off == 1).float().mean()) > 0.02
    whole, cut = (denoise(x[None, None], DENOISER, sigma)[0, 0] for x in (y, cut_off))
    assert error(cut[ground], truth[ground]) < 1.2 * error(whole[ground], truth[ground])


def test_less_noise_than_it_has_learned_is_removed_in_part() -> None:
    clean = picture(40, 48)
    for sigma in (0.1 / 255, 1 / 255):
        y = noisy(clean, sigma)
        assert error(DENOISER.denoise(y, sigma), clean) < error(y, clean)


@pytest.mark.parametrize(("estimated", "least", "most"), [(False, 16, 64), (True, 56, 65)])
def test_never_worse_than_the_input(estimated: bool, least: int, most: int) -> None:
    """Crops of any size where the noise is given; its estimate needs some patches without
    texture."""
    generator = np.random.default_rng(0)
    for seed in range(8):
        sigma = float(np.exp(generator.uniform(np.log(2), np.log(75)))) / 255
        height, width = generator.integers(least, most, 2).tolist()
        clean = picture(height, width, seed)[None, None]
        y = noisy(clean, sigma, seed)
        result = denoise(y, DENOISER, None if estimated else sigma)
        # noise that is too faint to show stays
        faint = estimated and sigma < 0.015 * float(clean.max() - clean.min())
        limit = error(y, clean) if faint else 0.999 * error(y, clean)
        assert error(result, clean) <= limit, (sigma, height, width)


@pytest.mark.parametrize("period", [3, 4])
def test_a_lattice_is_kept(period: int) -> None:
    """A denoiser of photographs takes its points for noise; waves that noise does not have come
    back."""
    points = (torch.arange(48) % period == 0).float()
    clean = (0.3 + 0.4 * torch.outer(points, points))[None, None]
    y = noisy(clean, 25 / 255)
    assert error(denoise(y, DENOISER, 25 / 255), clean) < 0.35 * error(y, clean)


@pytest.mark.parametrize("seed", [383, 467])
def test_dots_in_strong_noise_are_kept(seed: int) -> None:
    """They hide a part of the noise, so that less of it is removed; some dots would go with it."""
    generator = np.random.default_rng(seed)
    clean = torch.from_numpy(halftone(generator, 48)).float()[None, None]
    noise = torch.from_numpy(generator.normal(size=(48, 48))).float()
    y = clean + 25 / 255 * noise
    assert error(denoise(y, DENOISER, 25 / 255), clean) < 0.88 * error(y, clean)


@pytest.mark.parametrize("seed", [1008, 1011])
def test_dots_cut_off_at_black_and_white_are_not_worse(seed: int) -> None:
    """Print in two values: strong noise is cut off at most pixels, so that less of it is left than
    was added."""
    generator = np.random.default_rng(seed)
    clean = torch.from_numpy(halftone(generator, 48)).float()[None, None]
    noise = torch.from_numpy(generator.normal(size=(48, 48))).float()
    cut_off = (clean + 50 / 255 * noise).clamp(0, 1)
    assert error(denoise(cut_off, DENOISER, 50 / 255), clean) <= error(cut_off, clean)


def test_colours_and_many_channels() -> None:
    clean = torch.stack([picture(40, 48), 0.8 * picture(40, 48), 1 - picture(40, 48)])[None]
    for truth in (clean, torch.cat([clean, clean], 1)):
        y = noisy(truth, 0.1)
        assert error(denoise(y, DENOISER, 0.1), truth) < 0.35 * error(y, truth)


def test_other_units_are_brought_to_those_it_has_learned() -> None:
    clean = picture(40, 48)[None, None]
    for black, white in ((0, 255), (-1, 1), (1000, 3000)):
        truth = black + (white - black) * clean
        y = noisy(truth, 0.1 * (white - black))
        assert error(denoise(y, DENOISER, 0.1 * (white - black)), truth) < 0.2 * error(y, truth)


def test_a_quality_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(SpecError, match="quality = 5; expected 8, 16, 32 or 64"):
        RestorationSpec(quality=5)


def test_a_border_is_reflected() -> None:
    plane = torch.arange(12.0).view(3, 4)
    ours = reflect(plane, 2)[:7, :8]
    torch.testing.assert_close(ours, F.pad(plane[None, None], (2, 2, 2, 2), mode="reflect")[0, 0])


def test_what_is_not_noise_is_put_back() -> None:
    """Of a removed signal that is all noise, all stays removed; of one that does not follow the
    input, nothing."""
    removed = 0.1 * torch.randn(100, 100, generator=torch.Generator().manual_seed(0))
    assert share_of_noise(removed, 0.1, 0.0) == pytest.approx(1, abs=0.04)
    assert share_of_noise(removed, 0.1, 0.5) == pytest.approx(0.5, abs=0.04)
    assert share_of_noise(removed, 0.1, 1.0) == 0
    assert share_of_noise(removed[:5, :5], 0.1, 0.7) == 0  # too few pixels to tell


def test_a_denoiser_says_what_it_is_and_shows_its_filters() -> None:
    denoiser = load_denoiser()
    assert repr(denoiser).startswith("Denoiser(8 steps, 4 × 256 filters of 256 values")
    assert denoiser._repr_html_().count("<img ") == 12


@pytest.mark.parametrize(("sigma", "passes"), [(0.12, 1), (0.03, 2)])
def test_progress_counts_both_passes_of_a_plane_as_one(sigma: float, passes: int) -> None:
    """Faint noise needs a second pass: the first one is then half of the work."""
    done: list[int] = []
    spec = RestorationSpec(quality=8, tile=64)
    denoise(
        noisy(picture(128, 128), sigma)[None, None],
        DENOISER,
        sigma,
        spec=spec,
        progress=done.append,
    )
    assert sum(done) == 128 * 128
    tiles = 4 * passes
    assert len(done) == tiles + (passes == 1)
    assert done[:4] == [64 * 64 // 2] * 4


@dataclass(frozen=True)
class Listening(Denoiser):
    """A denoiser that returns what it is given, and remembers the levels of the noise."""

    seen: list[float] = field(default_factory=list)

    def denoise(self, plane: torch.Tensor, noise: float, *settings: object) -> torch.Tensor:
        self.seen.append(noise)
        return plane


def test_strong_noise_does_not_press_a_picture_together() -> None:
    """The denoiser has learned σ = 0.2 of the range: a picture with so much keeps its contrast."""
    model = Listening(**vars(DENOISER))
    ramp = torch.linspace(0, 1, 64).expand(64, 64)
    denoise(noisy(ramp, 0.2)[None, None], model, 0.2)
    assert max(model.seen) > 0.14  # with eight standard deviations from black to white: 0.125
