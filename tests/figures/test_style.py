"""The palette: hues of features, and curves that the colour-blind can tell apart."""

import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from whatwhere.figures import style
from whatwhere.figures.tiles import feature_colours

# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB, for distances that eyes agree with."""
    xyz = (
        np.clip(rgb, 0, 1)
        @ np.array(
            [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
        ).T
    )
    t = xyz / np.array([0.95047, 1.0, 1.08883])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1)


def linear(rgb: np.ndarray) -> np.ndarray:
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("kind", BLINDNESS)
def test_curves_differ_for_the_colour_blind(kind):
    """Any two of the first four curves are further apart than 10 (2 is just noticeable), and each has its marker."""
    seen = lab(linear(np.array([to_rgb(c) for c in style.CURVES[:4]])) @ np.array(BLINDNESS[kind]).T)
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
