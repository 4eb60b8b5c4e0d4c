"""Which activations are drawn, their Gaussians, and which pooling variables project them."""

import numpy as np
import pytest
import torch

from whatwhere.figures.activations import draw_activations, gaussians, map_places, project
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet
from whatwhere.model.sized import LayerPlaces
from whatwhere.spec import ModelSpec


def test_samples_are_activations_of_the_feature(tiny):
    p = tiny.top.p
    samples = draw_activations(p, feature=2, count=5)
    values = p[samples.image, 2, samples.row, samples.column]
    assert len(samples) == 5
    np.testing.assert_array_equal(samples.value, values)
    assert (samples.value != 0).all()


def test_no_activation_is_drawn_twice_and_few_are_all_drawn():
    p = torch.zeros(3, 1, 4, 4)
    p[0, 0, 1, 2], p[2, 0, 3, 3] = 1.0, 2.0
    samples = draw_activations(p, feature=0, count=16)
    found = sorted(zip(samples.image, samples.row, samples.column, strict=True))
    assert found == [(0, 1, 2), (2, 3, 3)]
    assert len(draw_activations(torch.zeros(3, 1, 4, 4), feature=0, count=16)) == 0


def test_samples_are_drawn_uniformly_not_from_the_largest():
    """Of 1,000 activations from 1 to 1,000, samples have the mean and the spread of all of them,
    not of the top."""
    p = torch.arange(1.0, 1001.0).view(1000, 1, 1, 1).expand(-1, 60, -1, -1)
    drawn = np.concatenate([draw_activations(p, feature, count=16).value for feature in range(60)])
    assert drawn.mean() == pytest.approx(500, abs=40)
    assert drawn.std() == pytest.approx(1000 / 12**0.5, rel=0.1)
    assert drawn.min() < 20


def test_each_sample_uses_the_pooling_of_its_own_image(tiny):
    """The projection equals that of the one activation with its image's pooling, and differs with
    another's."""
    latents, (height, width) = tiny.top, tiny.images.shape[2:]
    samples = draw_activations(latents.p, feature=0, count=6)
    projected = project(tiny.model, latents, samples, height, width)

    def alone(i: int, image: int) -> torch.Tensor:
        p = torch.zeros(1, *latents.p.shape[1:])
        row, column = int(samples.row[i]), int(samples.column[i])
        p[0, 0, row, column] = float(samples.value[i])
        own = latents[image : image + 1].pooling_params
        pixels = tiny.model.at(height, width).decode(Latents(p, own))[0]
        (top, bottom), (left, right) = (
            LayerPlaces.of(tiny.model.spec, axis)[2].pixels_of(place)
            for axis, place in enumerate((row, column))
        )
        padded = torch.nn.functional.pad(pixels, (30, 30, 30, 30))
        return padded[:, 30 + top : 30 + bottom, 30 + left : 30 + right]

    other_differs = []
    for i, image in enumerate(samples.image):
        torch.testing.assert_close(projected[i], alone(i, int(image)))
        other_differs.append(
            not torch.allclose(projected[i], alone(i, (int(image) + 1) % len(tiny.images)))
        )
    assert any(other_differs)


def test_the_footprint_contains_the_whole_projection(tiny):
    """Nothing of a projection lies outside the cut: the cut has the same sum as the whole."""
    latents, (height, width) = tiny.top, tiny.images.shape[2:]
    for feature in range(latents.p.shape[1]):
        samples = draw_activations(latents.p, feature, count=4)
        p = torch.zeros(len(samples), *latents.p.shape[1:])
        p[np.arange(len(samples)), feature, samples.row, samples.column] = torch.as_tensor(
            samples.value
        )
        own = latents[torch.as_tensor(samples.image)].pooling_params
        whole = tiny.model.at(height, width).decode(Latents(p, own))
        cut = project(tiny.model, latents, samples, height, width)
        torch.testing.assert_close(cut.sum((1, 2, 3)), whole.sum((1, 2, 3)))


def test_the_papers_footprints():
    _, layer_1, layer_2 = LayerPlaces.of(ModelSpec.paper(), axis=1)
    assert layer_1.pixels_of(0) == (-4, 2)
    first, beyond = layer_2.pixels_of(3)
    assert beyond - first == 16  # one z₂ element sees 14 pixels, and a region of two of them 16


def test_a_feature_without_activations_projects_to_nothing(tiny):
    latents = Latents(torch.zeros_like(tiny.top.p), tiny.top.pooling_params)
    samples = draw_activations(latents.p, 0, count=16)
    assert project(tiny.model, latents, samples, *tiny.images.shape[2:]).shape[0] == 0


@pytest.fixture
def one_gaussian(tiny):
    """Latents with a single activation, whose Gaussian is known."""
    theta = tiny.layers[0].pooling_params[0]
    p, mu, gamma = (
        torch.zeros_like(tiny.layers[0].p),
        torch.zeros_like(theta.mu),
        torch.ones_like(theta.gamma),
    )
    p[4, 2, 3, 5] = 2.0
    mu[4, :, 2, 3, 5] = torch.tensor([-0.25, 0.5])  # rows, columns
    gamma[4, :, 2, 3, 5] = torch.tensor([16.0, 0.01])
    return Latents(p, (PoolingParams(mu, gamma),))


def test_a_gaussian_is_read_from_its_own_region(tiny, one_gaussian):
    found = gaussians(tiny.model, tiny.images, one_gaussian, layer=1, feature=2)
    np.testing.assert_allclose(found.centre, [[5 * 2 + 0.5 + 0.5, 3 * 2 + 0.5 - 0.25]])
    # 1/√0.01 is 10: almost flat, limited to half the region
    np.testing.assert_allclose(found.sigma, [[1.0, 0.25]])
    assert len(gaussians(tiny.model, tiny.images, one_gaussian, layer=1, feature=0)) == 0


def test_below_the_top_layer_the_reconstructed_features_count(tiny):
    p1 = tiny.model.at(11, 13).reconstruct(
        tiny.top.p, tiny.model.at(11, 13).weights(tiny.top.pooling_params), to=1
    )
    found = gaussians(tiny.model, tiny.images, tiny.top, layer=1, feature=3, most=10_000)
    image, row, column = np.nonzero(np.asarray(p1[:, 3] > 0.05 * p1[:, 3].max()))
    mu = tiny.top.pooling_params[0].mu[image, :, 3, row, column].flip(1).numpy()
    expected = np.column_stack([column, row]) * 2 + 0.5 + mu
    np.testing.assert_allclose(
        found.centre[np.lexsort(found.centre.T)], expected[np.lexsort(expected.T)]
    )


def test_at_most_so_many_gaussians_are_drawn(tiny):
    found = (gaussians(tiny.model, tiny.images, tiny.top, 1, 1, most=10) for _ in range(2))
    one, again = (gaussian.centre for gaussian in found)
    assert len(one) == 10
    np.testing.assert_array_equal(one, again)


def test_pixels_lie_where_their_explanation_is():
    """The centre of what an element of z reaches is the pixel that is drawn behind it."""
    model = DeconvNet(ModelSpec.paper())
    assert map_places(model, 1, axis=0) == (1, -2.0)
    stride, offset = map_places(model, 2, axis=1)
    z2 = 7  # reaches p₁ 3…7, z₁ 6…15, pixels 2…15
    assert stride * z2 + offset == (2 + 15) / 2
