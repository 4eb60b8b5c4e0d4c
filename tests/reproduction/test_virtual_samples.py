"""Virtual samples: moves of images."""

import numpy as np
import pytest
import torch

from reproduction.svm.virtual_samples import Move, moved, moves


def test_whole_shifts_move_pixels_and_lose_what_leaves() -> None:
    images = torch.rand(2, 1, 5, 7)
    np.testing.assert_allclose(moved(images, Move(down=1))[:, :, 1:], images[:, :, :-1], atol=1e-5)
    np.testing.assert_allclose(moved(images, Move(right=-2))[..., :-2], images[..., 2:], atol=1e-5)
    assert moved(images, Move(down=1))[:, :, 0].abs().max() < 1e-5


@pytest.mark.parametrize(("height", "width"), [(7, 7), (5, 9)])
def test_a_quarter_turn_is_anticlockwise(height: int, width: int) -> None:
    images = torch.zeros(1, 1, height, width)
    images[0, 0, height // 2, width // 2 + 2] = 1.0
    turned = moved(images, Move(degrees=90.0))[0, 0]
    assert turned[height // 2 - 2, width // 2] == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(moved(images, Move(degrees=360.0)), images, atol=1e-4)


def test_the_moves_of_a_spec() -> None:
    assert moves(0, 0) == ()
    assert set(moves(1, 0)) == {Move(1, 0), Move(-1, 0), Move(0, 1), Move(0, -1)}
    assert set(moves(0, 7.5)) == {Move(degrees=7.5), Move(degrees=-7.5)}
    assert len(moves(2, 5.0)) == 6
