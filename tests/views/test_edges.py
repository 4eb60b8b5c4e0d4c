"""Histograms of directions, compared with NumPy's gradient of straight waves."""

import math

import numpy as np
import pytest
import torch

from whatwhere.views import Edges


def wave(degrees: float, side: int = 64) -> torch.Tensor:
    """A picture whose gradient has one direction."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    angle = math.radians(degrees)
    return (0.5 + 0.5 * torch.sin(0.3 * (x * math.cos(angle) + y * math.sin(angle))))[None, None]


@pytest.mark.parametrize("degrees", [0, 40, 100, 160])
def test_the_strongest_bin_is_the_direction_of_the_wave(degrees: float) -> None:
    (maps,) = Edges()(wave(degrees))
    assert int(maps.sum((2, 3)).argmax()) == degrees // 20


def test_maps_add_up_to_the_length_of_the_gradient() -> None:
    v = torch.rand(1, 1, 64, 64)
    down, across = np.gradient(v[0, 0].numpy())
    lengths = 2 * np.hypot(down, across)
    (maps,) = Edges()(v)
    inside = maps.sum(1)[0, 1:-1, 1:-1].numpy()
    np.testing.assert_allclose(inside, lengths[1:-1, 1:-1], rtol=1e-4, atol=1e-5)


def test_brightness_and_contrast_change_little() -> None:
    v = wave(30)
    torch.testing.assert_close(Edges().rows(v), Edges().rows(0.3 + 0.5 * v), atol=1e-4, rtol=0)
