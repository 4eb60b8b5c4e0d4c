"""Filling in by the trained denoiser."""

import pytest
import torch
from torch import Tensor

from pictures_to_restore import discs, error, noisy
from whatwhere.restoration import inpaint, load_denoiser
from whatwhere.restoration.fill import (
    FillSettings,
    _continued,
    _laplacian,
    _smooth_fill,
    faint_detail,
    fill_in,
)

DENOISER = load_denoiser()


def known_pixels(images: Tensor, missing: float) -> Tensor:
    return (torch.rand(images.shape, generator=torch.Generator().manual_seed(1)) >= missing).float()


def test_a_smooth_fill_keeps_what_is_known_and_ramps() -> None:
    ramp = torch.linspace(0, 1, 37).expand(30, 37)
    known = known_pixels(ramp, 0.7)
    filled = _smooth_fill(ramp * known, known)
    assert torch.equal(filled[known > 0], ramp[known > 0])
    assert (filled - ramp).abs().max() < 0.12
    assert torch.equal(_smooth_fill(ramp * 0 + 0.4, torch.eye(30, 37)), torch.full((30, 37), 0.4))


@pytest.mark.parametrize("missing", [0.3, 0.8])
def test_missing_pixels_are_nearer_to_the_truth_than_a_smooth_fill(missing: float) -> None:
    truth = discs(48, 56)[None, None]
    known = known_pixels(truth, missing)
    result = inpaint(torch.where(known > 0, truth, torch.nan), known, DENOISER)
    assert torch.equal(result[known > 0], truth[known > 0])
    smooth = _smooth_fill(truth[0, 0] * known[0, 0], known[0, 0])
    assert error(result, truth) < 0.8 * error(smooth, truth[0, 0])


def test_the_first_round_begins_with_gaps_of_the_least_curvature() -> None:
    planes: list[Tensor] = []

    def denoise(plane: Tensor, noise: float, shifts: int, first: int) -> Tensor:
        planes.append(plane)
        return plane

    truth = 0.5 + 40 * waves(30, 32)
    known = known_pixels(truth, 0.5)
    fill_in(denoise, truth, known, 0.0, 16)
    assert error(planes[0], truth) < 0.5 * error(_smooth_fill(truth, known), truth)


def test_the_grid_moves_on_and_early_rounds_have_a_quarter_of_its_shifts() -> None:
    calls: list[tuple[int, int]] = []

    def denoise(plane: Tensor, noise: float, shifts: int, first: int) -> Tensor:
        calls.append((shifts, first))
        return plane

    fill_in(denoise, discs(8, 8), known_pixels(discs(8, 8), 0.5), 0.0, 16)
    assert [shifts for shifts, _ in calls] == [4] * 16 + [16] * 8
    assert [first for _, first in calls] == [
        sum(shifts for shifts, _ in calls[:k]) for k in range(24)
    ]


def waves(height: int, width: int) -> Tensor:
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.sin(0.5 * x + 0.2 * y) / 255


def test_faint_detail_is_continued_and_white_noise_is_not() -> None:
    detail = waves(60, 64)
    known = known_pixels(detail, 0.5) > 0
    # the denoiser has kept a part where it knows
    result = faint_detail(torch.where(known, 0.6 * detail, 0), known)
    assert error(result[~known], detail[~known]) < 0.4 * error(0 * detail[~known], detail[~known])
    white = torch.randn(60, 64, generator=torch.Generator().manual_seed(3)) / 255
    assert error(faint_detail(torch.where(known, white, 0), known), 0 * white) < 0.05 / 255
    assert not faint_detail(torch.zeros(1, 1), torch.ones(1, 1) > 0).any()


def test_detail_below_the_assumed_noise_is_filled_in() -> None:
    """A denoiser that removes everything faint."""
    detail = waves(40, 44)
    known = known_pixels(detail, 0.5)
    filled = fill_in(lambda plane, *rest: torch.full_like(plane, 0.5), 0.5 + detail, known, 0.0, 16)
    assert error(filled, 0.5 + detail) < 0.3 * error(torch.where(known > 0, detail, 0), detail)


def test_a_gap_has_the_least_curvature() -> None:
    """Known values stay; elsewhere the gradient of the squared curvature, and a little of the
    square, vanishes."""
    values = 255 * waves(20, 22)
    known = known_pixels(values, 0.6) > 0
    result = _continued(values * known, known, FillSettings())
    assert torch.equal(result[known], values[known])
    start, end = (
        (_laplacian(_laplacian(u)) + 0.01 * u)[~known].square().sum()
        for u in (values * known, result)
    )
    assert end < 1e-6 * start
    assert error(result, values) < 0.15 * error(values * known, values)


def test_known_pixels_are_denoised_where_noise_is_given() -> None:
    truth = discs(48, 56)[None, None]
    given, known = noisy(truth, 0.1), known_pixels(truth, 0.3)
    result = inpaint(given, known, DENOISER, noise=0.1)
    assert error(result[known > 0], truth[known > 0]) < 0.5 * error(
        given[known > 0], truth[known > 0]
    )


def test_colours_and_sizes_from_1_pixel() -> None:
    for height, width in ((1, 1), (1, 9), (14, 17)):
        truth = torch.stack(
            [discs(height, width), 0.5 * discs(height, width), 1 - discs(height, width)]
        )[None]
        known = known_pixels(truth[:, :1], 0.5)
        known[..., 0, 0] = 1
        result = inpaint(truth * known, known, DENOISER)
        assert result.isfinite().all()
        assert error(result, truth) <= error(truth * known, truth)
