"""The contributions of features add up to the reconstruction, and each has the colour of its feature."""

import colorsys

import numpy as np
import pytest
import torch

from figures.tiny_model import make_tiny
from whatwhere.figures.activations import gaussians
from whatwhere.figures.decomposition import decompose
from whatwhere.figures.tiles import feature_colours
from whatwhere.latents import Latents
from whatwhere.ops.pooling import unpool
from whatwhere.spec import InputSpec


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
    shown = parts.coloured()
    hue = colorsys.rgb_to_hsv(*feature_colours(6)[4])[0]
    amount = parts.pixels.sum((0, 1))
    assert list(parts.features) == [4]
    assert (amount > 0.05).any()
    for y, x in np.argwhere(amount > 0.05):
        assert colorsys.rgb_to_hsv(*shown[y, x])[0] == pytest.approx(hue, abs=1e-6)


def test_saturation_grows_with_the_contribution(tiny):
    parts = decompose(tiny.model, tiny.layers[0][:1], 11, 13)
    whole = parts.pixels.sum((0, 1))
    darkness = 3 - parts.coloured().sum(-1)
    assert darkness[whole == 0].max(initial=0) == 0
    assert np.corrcoef(whole.ravel(), darkness.ravel())[0, 1] > 0.9


def test_an_image_without_features_has_no_contributions(tiny):
    latents = Latents(torch.zeros_like(tiny.top.p[:1]), tiny.top[:1].pooling_params)
    parts = decompose(tiny.model, latents, 11, 13)
    assert len(parts.features) == 0
    assert (parts.coloured() == 1).all()


def test_contributions_of_a_model_with_an_input_stage_are_in_pixels():
    """They add up to the reconstruction without the low-pass that the stage took off."""
    one = make_tiny(input=InputSpec(kind="onoff", sigma=2.0, contrast=0.5))
    latents = one.top[:1]
    parts = decompose(one.model, latents, 11, 13)
    assert parts.pixels.shape == (len(parts.features), 1, 11, 13)
    whole = one.model.at(11, 13).decode(latents) - latents.background.low
    np.testing.assert_allclose(parts.pixels.sum(0), whole[0].double().numpy(), atol=1e-5)


def test_an_ellipse_lies_where_its_feature_draws(tiny):
    """Each Gaussian on the image is in the middle of what its feature draws, to a few pixels."""
    latents = tiny.layers[0][:1]
    parts = decompose(tiny.model, latents, 11, 13)
    for feature in parts.features:
        alone = Latents(torch.zeros_like(latents.p), latents.pooling_params)
        j = latents.p[0, feature].flatten().argmax()
        alone.p[0, feature].view(-1)[j] = 1.0
        ((x, y),) = gaussians(tiny.model, tiny.images[:1], alone, 1, int(feature)).in_pixels(tiny.model, 1).centre
        drawn = tiny.model.at(11, 13).decode(alone)[0, 0].numpy()
        rows, columns = np.mgrid[:11, :13]
        if drawn[1:-1, 1:-1].sum() < 0.99 * drawn.sum():
            continue  # cut off by the border
        assert abs((drawn * columns).sum() / drawn.sum() - x) < 1
        assert abs((drawn * rows).sum() / drawn.sum() - y) < 1
