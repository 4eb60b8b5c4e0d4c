"""Noise that was blurred."""

import pytest

from pictures_to_restore import blurred
from whatwhere.restoration.correlation import half_size, sigma_at_half_size, width_of


def test_the_mean_of_four_pixels_of_correlated_noise_has_the_stated_deviation() -> None:
    noise = blurred(0.7, (512, 512))
    assert float(half_size(noise).std()) == pytest.approx(sigma_at_half_size(0.7), rel=0.02)


def test_the_growth_of_the_deviation_tells_the_width() -> None:
    noise = blurred(0.7, (512, 512))
    haar = [
        float((x[::2, ::2] - x[::2, 1::2] - x[1::2, ::2] + x[1::2, 1::2]).std())
        for x in (noise, half_size(noise))
    ]
    assert width_of(2 * haar[1] / haar[0]) == pytest.approx(0.7, rel=0.05)
