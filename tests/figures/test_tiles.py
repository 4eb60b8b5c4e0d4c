"""Numbers as shades, mixtures of hues, and where a tile stands on its sheet."""

import colorsys

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.figures.tiles import (
    GAP,
    columns_for,
    feature_colours,
    image_to_rgb,
    is_ink,
    mix_colours,
    part_to_rgb,
    shade,
    tile,
)


def test_shade_runs_from_white_to_ink():
    shown = shade(np.array([[0.0, 0.5, 1.0, np.nan]]))
    np.testing.assert_allclose(shown[0, :3, 0], [1.0, 0.55, 0.1])
    np.testing.assert_array_equal(shown[0, 3], GAP)


def test_shade_gives_signs_different_hues_and_zero_none():
    minus, zero, plus = shade(np.array([[-1.0, 0.0, 1.0]]))[0]
    assert minus[0] > minus[2]  # orange: more red than blue
    assert plus[2] > plus[1]  # purple: more blue than green
    assert zero.min() > 0.95


def test_shade_of_nothing_is_white():
    assert (shade(np.zeros((3, 3))) == 1).all()


def test_one_part_has_its_own_hue_and_a_saturation_by_its_size():
    colours = feature_colours(48)
    for b in (0, 7, 31):
        hue = colorsys.rgb_to_hsv(*colours[b])[0]
        saturations = []
        for size in (0.2, 0.6, 1.0):
            shown = mix_colours(np.full((1, 1, 1), size), colours[[b]], limit=1.0)[0, 0]
            h, s, _ = colorsys.rgb_to_hsv(*shown)
            assert h == pytest.approx(hue, abs=1e-9)
            saturations.append(s)
        assert saturations == sorted(saturations)
        np.testing.assert_allclose(shown, colours[b])


def test_no_part_leaves_the_paper_white():
    assert (mix_colours(np.zeros((2, 3, 3)), feature_colours(2)) == 1).all()


def test_mixtures_are_darker_than_their_parts_and_less_saturated():
    """Two opposite hues in equal parts take each other's light away: brownish, with little hue of their own."""
    red, cyan = np.array([[0.9, 0.2, 0.2], [0.2, 0.8, 0.8]])
    both = mix_colours(np.ones((2, 1, 1)), np.stack([red, cyan]), limit=1.0)[0, 0]
    assert both.sum() < min(red.sum(), cyan.sum())
    assert np.ptp(both) < min(np.ptp(red), np.ptp(cyan))


def test_tile_puts_pictures_row_by_row():
    pictures = np.zeros((3, 2, 4, 3))
    pictures += np.array([0.1, 0.2, 0.3])[:, None, None, None]
    sheet = tile(pictures, columns=2, gap=1)
    assert sheet.shape == (2 * 3 + 1, 2 * 5 + 1, 3)
    assert sheet[1, 1, 0] == 0.1
    assert sheet[1, 6, 0] == 0.2
    assert sheet[4, 1, 0] == 0.3
    np.testing.assert_array_equal(sheet[0, 0], GAP)
    np.testing.assert_array_equal(sheet[4, 6], GAP)  # the place that is left over


def test_colour_images_keep_their_colours():
    image = torch.rand(3, 4, 5)
    np.testing.assert_allclose(image_to_rgb(image, ink=False), image.permute(1, 2, 0).double().numpy())
    assert image_to_rgb(torch.rand(2, 4, 5), ink=True).shape == (4, 5, 3)


def test_photographs_keep_their_shades_and_strokes_are_ink():
    photograph = torch.linspace(0.2, 1, 64).view(1, 8, 8)
    digit = ww.data.load("digits")[0]
    assert (is_ink(photograph), is_ink(digit), is_ink(1 - digit)) == (False, True, False)
    np.testing.assert_allclose(image_to_rgb(photograph, 1.0, ink=False)[:, :, 1], photograph[0].double().numpy())
    assert image_to_rgb(digit, 1.0, ink=True).mean() > 0.7


def test_parts_are_scaled_one_by_one_and_zero_is_grey_where_colours_are_signed():
    parts = torch.stack([torch.full((3, 2, 2), 0.1), torch.zeros(3, 2, 2)])
    np.testing.assert_allclose(part_to_rgb(parts)[:, 0, 0, 0], [1, 0])
    parts[0, 1] = -0.1
    np.testing.assert_allclose(part_to_rgb(parts)[:, 0, 0], [[1, 0, 1], [0.5, 0.5, 0.5]])


@pytest.mark.parametrize(("n", "columns"), [(1, 1), (4, 2), (6, 2), (16, 4), (48, 8), (7, 3), (12, 3), (11, 3)])
def test_columns(n, columns):
    assert columns_for(n) == columns
