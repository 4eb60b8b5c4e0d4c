"""Strengths of waves, compared with waves of one direction and with NumPy's correlations."""

import math

import numpy as np
import pytest
import torch

from whatwhere.views import Patterns

WHOLE = Patterns(scales=1)


def wave(number: int, side: int = 64) -> torch.Tensor:
    """A picture of waves of 4 pixels, in one of six directions."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    angle = math.pi * number / 6
    along = x * math.cos(angle) + y * math.sin(angle)
    return (0.5 + 0.4 * torch.sin(2 * math.pi * along / 4))[None, None]


@pytest.mark.parametrize("number", range(6))
def test_the_direction_of_a_wave_is_the_strongest(number: int) -> None:
    (maps,) = WHOLE(wave(number))
    assert int(maps.mean((2, 3)).argmax()) == number


def test_strengths_do_not_depend_on_the_phase() -> None:
    (maps,) = WHOLE(wave(1))
    inside = maps[0, 1, 8:-8, 8:-8]
    assert float(inside.std() / inside.mean()) < 0.02


def test_rows_are_means_deviations_and_correlations() -> None:
    picture = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    (maps,) = WHOLE(picture)
    row = WHOLE.rows(picture)[0].numpy()
    values = maps[0].flatten(1).double().numpy()
    np.testing.assert_allclose(row[:6], np.log(values.mean(1) + 1e-3), rtol=1e-4)
    np.testing.assert_allclose(row[6:12], np.log(values.std(1) + 1e-3), rtol=1e-4)
    pairs = np.triu_indices(6, 1)
    np.testing.assert_allclose(row[12:], 1.8 * np.corrcoef(values)[pairs], atol=0.02)


def test_checks_and_stripes_differ_by_correlations() -> None:
    """Both directions occur in both pictures, at the same places only in the first."""
    checks = (wave(0) + wave(3)) / 2
    halves = torch.cat([wave(0)[..., :32], wave(3)[..., 32:]], 3)
    of_pair = 12 + list(zip(*np.triu_indices(6, 1), strict=True)).index((0, 3))
    assert float(WHOLE.rows(halves)[0, of_pair]) < -1
    assert float(WHOLE.rows(checks)[0, of_pair]) > -0.5


def test_places_do_not_matter_but_colours_do() -> None:
    v = torch.cat([wave(0), wave(2) ** 2, wave(4) / 2], 1)
    rows = Patterns().rows(torch.cat([v, v.roll((8, 16), (2, 3)), v.flip(1)]))
    assert rows.shape == (3, 567)
    same, other = ((rows[0] - row).norm() for row in rows[1:])
    assert same < 0.5 * other


def test_a_row_does_not_depend_on_other_pictures() -> None:
    v = torch.rand(5, 1, 20, 30)
    torch.testing.assert_close(Patterns().rows(v)[2], Patterns().rows(v[2:3])[0])
