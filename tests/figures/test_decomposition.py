"""The contributions of features add up to the reconstruction, and each has the colour of its feature."""

import colorsys

import numpy as np
import pytest
import torch

from whatwhere.figures.decomposition import colour_by_feature, decompose
from whatwhere.figures.style import feature_colours
from whatwhere.latents import Latents
from whatwhere.ops.pooling import unpool


@pytest.mark.parametrize("layer", [1, 2])
def test_the_contributions_add_up_at_every_stage(tiny, layer):
    latents = tiny.layers[layer - 1][2:3]
    parts = decompose(tiny.model, latents, 11, 13)
    weights = tiny.model.at(11, 13).weights(latents.pooling_params)
    stages = tiny.model.at(11, 13).descend(latents.p, weights)
    np.testing.assert_allclose(parts.pixels.sum(0), stages[0][0], atol=1e-6)
    for k in range(1, layer + 1):
        np.testing.assert_allclose(parts.pooled[k - 1].sum(0), stages[k][0], atol=1e-6)
        z = unpool(stages[k], weights[k - 1])
        np.testing.assert_allclose(parts.unpooled[k - 1].sum(0), z[0], atol=1e-6)


def test_a_contribution_contains_one_feature_only(tiny):
    latents = tiny.top[:1]
    parts = decompose(tiny.model, latents, 11, 13)
    active = [b for b in range(6) if latents.p[0, b].any()]
    assert list(parts.features) == active
    for a, b in enumerate(active):
        np.testing.assert_array_equal(parts.pooled[-1][a, b], latents.p[0, b])
        assert np.delete(parts.pooled[-1][a], b, axis=0).max() == 0
    assert parts.shares.sum() == pytest.approx(1)


def test_pixels_of_one_feature_have_its_hue(tiny):
    p = torch.zeros_like(tiny.top.p[:1])
    p[0, 4] = tiny.top.p[:, 4].amax(0)
    parts = decompose(tiny.model, Latents(p, tiny.top[:1].pooling_params), 11, 13)
    shown = colour_by_feature(parts, features=6)
    hue = colorsys.rgb_to_hsv(*feature_colours(6)[4])[0]
    amount = parts.pixels.sum((0, 1))
    assert list(parts.features) == [4]
    assert (amount > 0.05).any()
    for y, x in np.argwhere(amount > 0.05):
        assert colorsys.rgb_to_hsv(*shown[y, x])[0] == pytest.approx(hue, abs=1e-6)


def test_saturation_grows_with_the_contribution(tiny):
    parts = decompose(tiny.model, tiny.layers[0][:1], 11, 13)
    whole = parts.pixels.sum((0, 1))
    darkness = 3 - colour_by_feature(parts, features=4).sum(-1)
    assert darkness[whole == 0].max(initial=0) == 0
    assert np.corrcoef(whole.ravel(), darkness.ravel())[0, 1] > 0.9


def test_an_image_without_features_has_no_contributions(tiny):
    latents = Latents(torch.zeros_like(tiny.top.p[:1]), tiny.top[:1].pooling_params)
    parts = decompose(tiny.model, latents, 11, 13)
    assert len(parts.features) == 0
    assert (colour_by_feature(parts, features=6) == 1).all()
