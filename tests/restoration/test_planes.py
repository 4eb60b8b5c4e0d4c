"""Brightness and differences of colour."""

import torch

from whatwhere.restoration.planes import OPPONENT, from_opponent, to_opponent


def test_the_transform_is_orthonormal_and_grey_is_in_the_first_plane() -> None:
    assert torch.allclose(OPPONENT @ OPPONENT.T, torch.eye(3, dtype=torch.float64), atol=1e-12)
    torch.manual_seed(0)
    images = torch.rand(2, 3, 4, 5)
    assert torch.allclose(from_opponent(to_opponent(images)), images, atol=1e-6)
    grey = torch.full((1, 3, 2, 2), 0.5)
    assert to_opponent(grey)[:, 1:].abs().max() < 1e-6
    assert not torch.allclose(to_opponent(images), images)
