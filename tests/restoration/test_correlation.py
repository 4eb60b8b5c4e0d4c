"""Noise that was blurred."""

import pytest

from pictures_to_restore import blurred
from whatwhere.restoration.correlation import half_size, white_sigma, width_of


def test_white_noise_that_stands_for_blurred_noise_is_as_strong_in_coarse_detail() -> None:
    half = half_size(blurred(0.7, (512, 512)))
    fine, coarse = 2 * float(half.std()), 4 * float(half_size(half).std())
    assert fine < white_sigma(0.7) < coarse
    assert white_sigma(0.7) == pytest.approx((fine * coarse) ** 0.5, rel=0.02)
    assert white_sigma(0) == pytest.approx(1)


def test_the_growth_of_the_deviation_tells_the_width() -> None:
    noise = blurred(0.7, (512, 512))
    haar = [
        float((x[::2, ::2] - x[::2, 1::2] - x[1::2, ::2] + x[1::2, 1::2]).std())
        for x in (noise, half_size(noise))
    ]
    assert width_of(2 * haar[1] / haar[0]) == pytest.approx(0.7, rel=0.05)
