"""Moments of where: the definition, cell by cell."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.classification import describe, describe_images
from whatwhere.classification.where_moments import mean_position, where_cells
from whatwhere.errors import SpecError
from whatwhere.latents import PoolingParams
from whatwhere.spec import DescriptorSpec


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_mean_position_is_that_of_the_weights(size: int) -> None:
    theta = PoolingParams(drawn(2, 2, 3, 2, 2), drawn(2, 2, 3, 2, 2, seed=1).exp())
    found = mean_position(theta, size).numpy()
    for place in np.ndindex(*found.shape):
        x = [i - (size - 1) / 2 for i in range(size)]
        mu, gamma = float(theta.mu[place]), float(theta.gamma[place])
        w = [np.exp(-gamma * (xi - mu) ** 2 / 2) for xi in x]
        expected = sum(wi * xi for wi, xi in zip(w, x, strict=True)) / sum(w) / max((size - 1) / 2, 0.5)
        assert found[place] == pytest.approx(expected, abs=1e-12)


def test_a_cell_has_the_weighted_mean_and_deviation_of_its_positions() -> None:
    p = drawn(2, 3, 4, 5).clamp(min=0)
    p[0, 0, :2, :3] = 0  # an empty cell
    position, cells = drawn(2, 2, 3, 4, 5, seed=1).tanh(), drawn(2, 3, 3, 3, seed=2).abs()
    found = where_cells(p, position, cells, (2, 3)).view(2, 4, 3, 3, 3).numpy()
    for n, b, i, j in np.ndindex(2, 3, 3, 3):
        weights = p[n, b, i : i + 2, j : j + 3].flatten().numpy()
        for axis in range(2):
            values = position[n, axis, b, i : i + 2, j : j + 3].flatten().numpy()
            mean = np.average(values, weights=weights) if weights.any() else 0
            spread = np.sqrt(np.average((values - mean) ** 2, weights=weights)) if weights.any() else 0
            pair = float(cells[n, b, i, j]) * np.array([mean, spread])
            np.testing.assert_allclose(found[n, 2 * axis : 2 * axis + 2, b, i, j], pair, atol=1e-7)


def test_a_descriptor_with_where_adds_columns_and_keeps_those_of_what() -> None:
    p, position = drawn(3, 2, 6, 6).clamp(min=0), drawn(3, 2, 2, 6, 6, seed=1).tanh()
    alone = describe([p], DescriptorSpec(), [2])
    both = describe([p], DescriptorSpec(where=0.5), [2], positions=[position])
    assert both.shape == (3, 5 * alone.shape[1])
    what = both.view(3, 5, -1)[:, 0]
    np.testing.assert_allclose(what / what.norm(dim=1, keepdim=True), alone, atol=1e-12)
    np.testing.assert_allclose(both.norm(dim=1), 1, atol=1e-12)
    with pytest.raises(SpecError, match="without positions"):
        describe([p], DescriptorSpec(where=0.5), [2])


def test_images_are_described_with_where() -> None:
    model = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=3),)), seed=1)
    change = {"inference": {"steps": 3}, "descriptor": {"where": 1.0}}
    recipe = ww.override(ww.Recipe.paper(model.spec), change)
    images = ww.data.load("digits")[:4][:, :, 8:20, 8:20]
    solution = ww.infer(model, images, recipe.inference, engine="reference")
    position = mean_position(solution.latents.pooling_params[0], 2)
    found = describe_images(model, images, recipe, engine="reference")
    found = found.toarray() if hasattr(found, "toarray") else found
    expected = describe([solution.features], recipe.descriptor, [1], positions=[position])
    np.testing.assert_allclose(found, expected, atol=1e-6)
