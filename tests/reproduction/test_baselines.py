"""The baselines, compared with their formulas."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from reproduction import baselines
from reproduction.jobs import DataSpec
from whatwhere.data import Images
from whatwhere.errors import RunError


@pytest.fixture
def digits():
    return DataSpec("digits", limit=80).load()


def test_pixels_are_of_unit_length(digits):
    x, x_test = baselines.RawPixels().describe(*digits)
    assert x.shape == x_test.shape == (80, 784)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-5)


def test_columns_are_standardised_by_the_training_images_alone():
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(3, 5, (200, 4)).astype(np.float32), rng.normal(0, 1, (50, 4)).astype(np.float32)
    x[:, 2] = 7.0
    training, test = (Images(part[:, None, :, None], None, "columns") for part in (x, x_test))
    y, describe = baselines.standardise(lambda images: images[:].flatten(1).numpy(), training)
    y_test = describe(test)
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(0), [1, 1, 0, 1], rtol=1e-5)
    np.testing.assert_allclose(y_test[:, 0], (x_test[:, 0] - x[:, 0].mean()) / x[:, 0].std(), rtol=1e-4, atol=1e-5)


def test_whitened_patches_have_the_identity_as_covariance():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(5000, 6, generator=generator) @ torch.randn(6, 6, generator=generator) + 2
    mean, whiten = baselines.zca(points, 1e-9)
    covariance = ((points - mean) @ whiten).T.cov()
    torch.testing.assert_close(covariance, torch.eye(6), atol=2e-3, rtol=0)
    torch.testing.assert_close(whiten, whiten.T, atol=1e-5, rtol=1e-4)


def test_lloyd_ends_where_every_centroid_is_the_mean_of_its_points():
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(300, 3, generator=generator)
    centroids = baselines.lloyd(points, 5, 100, generator)
    nearest = torch.cdist(points, centroids).argmin(1)
    for k in range(5):
        torch.testing.assert_close(centroids[k], points[nearest == k].mean(0), atol=1e-4, rtol=1e-4)


def test_the_triangle_is_the_distance_below_the_average_one():
    x, centroids = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    torch.testing.assert_close(baselines.triangle(x, centroids), torch.tensor([[0.0, 2.0]]))  # distances 5 and 1


def test_k_means_averages_the_answers_of_all_patches_on_a_grid(digits, monkeypatch):
    monkeypatch.setattr(baselines, "standardise", lambda rows, training: (rows(training), rows))
    method = baselines.KMeans(centroids=5, patches=500, iterations=2, patch=5, grid=2)
    monkeypatch.setattr(baselines, "triangle", lambda x, centroids: torch.full((*x.shape[:-1], len(centroids)), 3.0))
    x, _ = method.describe(*digits)
    assert x.shape == (80, 5 * 2 * 2)
    np.testing.assert_allclose(x, 3, rtol=1e-6)


def test_the_same_seed_gives_the_same_rows(digits):
    method = baselines.KMeans(centroids=8, patches=500, iterations=3)
    first, again = (method.describe(*digits)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = replace(method, seed=1).describe(*digits)[0]
    assert not np.array_equal(first, other)


def test_every_baseline_has_its_name_and_default_settings():
    for name, kind in baselines.BASELINES.items():
        assert kind().name == name
        assert tuple(sorted(kind.C)) == kind.C


@pytest.mark.skipif(find_spec("kymatio") is not None, reason="kymatio is installed here")
def test_scattering_says_why_it_cannot_run(digits):
    with pytest.raises(RunError, match=r"'scattering' cannot run here: kymatio 0\.3 .*reproduction/README\.md"):
        baselines.Scattering().describe(*digits)
