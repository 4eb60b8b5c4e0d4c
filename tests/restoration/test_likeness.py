"""What was removed from a picture: noise is removed, texture stays."""

import pytest
import torch

from pictures_to_restore import blurred
from whatwhere.restoration.likeness import share_like_noise

WHITE = blurred(1e-6, (96, 96))[None]
CORRELATED = blurred(0.6, (96, 96))[None]
STRIPES = blurred(1e-6, (96, 96), 1)[None, :1].expand(1, 96, 96)


@pytest.mark.parametrize(("noise", "correlated"), [(WHITE, False), (CORRELATED, True)])
def test_noise_is_removed_in_full(noise: torch.Tensor, correlated: bool) -> None:
    assert share_like_noise(0.95 * noise, correlated) == 1
    # no more than all of it
    assert share_like_noise(1.5 * noise, correlated) == pytest.approx(1 / 1.5**2, rel=0.01)


@pytest.mark.parametrize(("noise", "correlated"), [(WHITE, False), (CORRELATED, True)])
def test_what_has_a_direction_is_given_back_in_part(noise: torch.Tensor, correlated: bool) -> None:
    both = noise + STRIPES
    assert share_like_noise(both / both.std(), correlated) < 0.7
    turned = (noise + STRIPES.mT) / both.std()
    assert share_like_noise(turned, correlated) == pytest.approx(
        share_like_noise(both / both.std(), correlated), abs=0.1
    )


def test_white_noise_has_no_neighbours_that_are_alike() -> None:
    assert share_like_noise(CORRELATED, False) == pytest.approx(0.4, abs=0.01)


def test_nothing_and_a_line_are_no_texture() -> None:
    assert share_like_noise(torch.zeros(1, 8, 8), False) == 1
    assert share_like_noise(torch.rand(3, 1, 8), False) == 1
