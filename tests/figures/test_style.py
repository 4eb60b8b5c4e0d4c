"""Numbers as shades, mixtures of hues, and where a tile stands on its sheet."""

import colorsys
import itertools

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import whatwhere as ww
from whatwhere.figures import style
from whatwhere.figures.style import (
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
    """Two opposite hues in equal parts take each other's light away: brownish, with little hue of
    their own."""
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
    np.testing.assert_allclose(
        image_to_rgb(image, ink=False), image.permute(1, 2, 0).double().numpy()
    )
    assert image_to_rgb(torch.rand(2, 4, 5), ink=True).shape == (4, 5, 3)


def test_photographs_keep_their_shades_and_strokes_are_ink():
    photograph = torch.linspace(0.2, 1, 64).view(1, 8, 8)
    digit = ww.data.load("digits")[0]
    assert (is_ink(photograph), is_ink(digit), is_ink(1 - digit)) == (False, True, False)
    np.testing.assert_allclose(
        image_to_rgb(photograph, 1.0, ink=False)[:, :, 1], photograph[0].double().numpy()
    )
    assert image_to_rgb(digit, 1.0, ink=True).mean() > 0.7


def test_parts_are_scaled_one_by_one_and_zero_is_grey_where_colours_are_signed():
    parts = torch.stack([torch.full((3, 2, 2), 0.1), torch.zeros(3, 2, 2)])
    np.testing.assert_allclose(part_to_rgb(parts)[:, 0, 0, 0], [1, 0])
    parts[0, 1] = -0.1
    np.testing.assert_allclose(part_to_rgb(parts)[:, 0, 0], [[1, 0, 1], [0.5, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("n", "columns"), [(1, 1), (4, 2), (6, 2), (16, 4), (48, 8), (7, 3), (12, 3), (11, 3)]
)
def test_columns(n, columns):
    assert columns_for(n) == columns


# The palette: hues of features, and curves that the colour-blind can tell apart -------------------


# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB
BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB, for distances that eyes agree with."""
    xyz = (
        np.clip(rgb, 0, 1)
        @ np.array(
            [
                [0.4124564, 0.3575761, 0.1804375],
                [0.2126729, 0.7151522, 0.0721750],
                [0.0193339, 0.1191920, 0.9503041],
            ]
        ).T
    )
    t = xyz / np.array([0.95047, 1.0, 1.08883])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack(
        [116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1
    )


def linear(rgb: np.ndarray) -> np.ndarray:
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("kind", BLINDNESS)
def test_curves_differ_for_the_colour_blind(kind):
    """Any two of the first four curves are further apart than 10 (2 is just noticeable), and each
    has its marker."""
    seen = lab(
        linear(np.array([to_rgb(c) for c in style.CURVES[:4]])) @ np.array(BLINDNESS[kind]).T
    )
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(one - other) > 10
    assert len(set(style.MARKERS)) == len(style.CURVES)


@pytest.mark.parametrize("features", [1, 2, 4, 6, 16, 48])
def test_every_feature_has_a_colour_of_its_own(features):
    colours = feature_colours(features)
    assert colours.shape == (features, 3)
    assert colours.min() >= 0
    assert colours.max() <= 1
    assert len({tuple(c) for c in colours.round(6)}) == features
    np.testing.assert_array_equal(colours, feature_colours(features))


def test_neighbouring_numbers_have_hues_far_apart():
    colours = lab(linear(feature_colours(48)))
    distances = np.linalg.norm(np.diff(colours, axis=0), axis=1)
    assert distances.min() > 20


def test_the_style_does_not_leak():
    before = dict(matplotlib.rcParams)

    @style.styled
    def draw():
        assert matplotlib.rcParams["font.size"] == style.RC["font.size"]
        return Figure()

    draw()
    assert dict(matplotlib.rcParams) == before
