"""The Gaussians of one feature: their regions, means and widths."""

import sys

import numpy as np
import pytest
import torch

from whatwhere.figures.where_map import gaussians, pixel_to_map
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet
from whatwhere.spec import ModelSpec


@pytest.fixture
def one_gaussian(tiny):
    """Latents with a single activation, whose Gaussian is known."""
    theta = tiny.layers[0].pooling_params[0]
    p, mu, gamma = torch.zeros_like(tiny.layers[0].p), torch.zeros_like(theta.mu), torch.ones_like(theta.gamma)
    p[4, 2, 3, 5] = 2.0
    mu[4, :, 2, 3, 5] = torch.tensor([-0.25, 0.5])  # rows, columns
    gamma[4, :, 2, 3, 5] = torch.tensor([16.0, 0.01])
    return Latents(p, (PoolingParams(mu, gamma),))


def test_a_gaussian_is_read_from_its_own_region(tiny, one_gaussian):
    found = gaussians(tiny.model, tiny.images, one_gaussian, layer=1, feature=2)
    assert [int(v[0]) for v in (found.image, found.row, found.column)] == [4, 3, 5]
    assert found.value == pytest.approx(2.0)
    assert (found.x[0], found.y[0]) == (0.5, -0.25)
    assert found.sigma_y[0] == pytest.approx(0.25)
    assert found.sigma_x[0] == 1.0  # 1/√0.01 is 10: almost flat, limited to half the region
    assert len(gaussians(tiny.model, tiny.images, one_gaussian, layer=1, feature=0).x) == 0


def test_below_the_top_layer_the_reconstructed_features_count(tiny, monkeypatch):
    monkeypatch.setattr(sys.modules[gaussians.__module__], "MOST", 10_000)
    p1 = tiny.model.at(11, 13).reconstruct(tiny.top.p, tiny.model.at(11, 13).weights(tiny.top.pooling_params), to=1)
    found = gaussians(tiny.model, tiny.images, tiny.top, layer=1, feature=3)
    assert len(found.x) == int((p1[:, 3] > 0.05 * p1[:, 3].max()).sum())
    np.testing.assert_allclose(found.value, p1[found.image, 3, found.row, found.column])
    np.testing.assert_allclose(found.x, tiny.top.pooling_params[0].mu[found.image, 1, 3, found.row, found.column])


def test_the_seed_determines_the_subset(tiny, monkeypatch):
    monkeypatch.setattr(sys.modules[gaussians.__module__], "MOST", 10)

    def drawn(seed):
        found = gaussians(tiny.model, tiny.images, tiny.top, layer=1, feature=1, seed=seed)
        return list(zip(found.image, found.row, found.column, strict=True))

    assert len(drawn(0)) == 10
    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_pixels_lie_where_their_explanation_is():
    """The centre of what an element of z reaches is the pixel that is drawn behind it."""
    model = DeconvNet(ModelSpec.paper())
    assert pixel_to_map(model, 1) == (1.0, 2.0)
    scale, offset = pixel_to_map(model, 2)
    z2 = 7  # reaches p₁ 3…7, z₁ 6…15, pixels 2…15
    assert scale * (2 + 15) / 2 + offset == z2
