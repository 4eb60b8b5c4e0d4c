"""From a code back to pixels: places against those that the model itself reconstructs."""

import numpy as np
import pytest
import torch

from whatwhere.anomaly.pixel_map import UsualResidual, smooth, spread_patches, to_pixels
from whatwhere.classification.descriptors import layer_patches
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet
from whatwhere.spec import DescriptorSpec, LayerSpec, ModelSpec

LAYERS = {
    "one layer": (LayerSpec(maps=2, filter_size=5, pool_size=2),),
    "two layers": (LayerSpec(maps=2, filter_size=5), LayerSpec(maps=2, filter_size=3)),
    "without pooling": (LayerSpec(maps=2, filter_size=3, pool_size=1),),
}


@pytest.mark.parametrize("name", LAYERS)
def test_an_element_of_the_code_comes_to_lie_on_the_pixels_that_it_reconstructs(name: str) -> None:
    model = DeconvNet(ModelSpec(layers=LAYERS[name]))
    for k, f in enumerate(model.filters, start=1):
        model = model.with_filters(k, torch.ones_like(f))
    sized = model.at(32, 24)
    rows, columns = sized.regions[-1].grid[1:]
    i, j = rows // 2, columns // 3 + 1
    p = torch.zeros(1, 2, rows, columns)
    p[..., i, j] = 1
    shapes = [(1, 2, *region.grid) for region in sized.regions]
    flat = tuple(PoolingParams(torch.zeros(shape), torch.zeros(shape)) for shape in shapes)
    image = sized.decode(Latents(p, flat))[:, 0]
    heat = to_pixels(p[:, 0], sized)
    assert heat.shape == image.shape
    assert centre(heat) == pytest.approx(centre(image), abs=1e-3)


def centre(image: torch.Tensor) -> tuple[float, float]:
    total = image.sum()
    rows = (image.sum((0, 2)) * torch.arange(image.shape[1])).sum() / total
    columns = (image.sum((0, 1)) * torch.arange(image.shape[2])).sum() / total
    return float(rows), float(columns)


@pytest.mark.parametrize(("patch", "stride"), [(3, 1), (3, 2), (4, 3), (9, 1)])
def test_an_element_has_the_mean_of_the_patches_that_cover_it(patch: int, stride: int) -> None:
    """Which patches cover an element is read off the patches of a map with one feature."""
    spec, extent = DescriptorSpec(patch=(patch,), stride=(stride,), cell=1, cell_statistic="mean"), (6, 5)
    shape = layer_patches(torch.zeros(1, 1, *extent), spec, 1).shape[1:3]
    values = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    spread = spread_patches(values, spec, 1, extent)
    for i in range(extent[0]):
        for j in range(extent[1]):
            p = torch.zeros(1, 1, *extent)
            p[..., i, j] = 1
            covering = layer_patches(p, spec, 1)[0].any(2)
            expected = values[:, covering].mean(1) if covering.any() else torch.zeros(2)
            torch.testing.assert_close(spread[:, i, j], expected)


def test_smoothing_averages_the_pixels_that_exist() -> None:
    values = torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(0))
    smoothed = smooth(values, 3)
    torch.testing.assert_close(smoothed[:, 0, 0], values[:, :2, :2].mean((1, 2)))
    torch.testing.assert_close(smoothed[:, 2, 2], values[:, 1:4, 1:4].mean((1, 2)))
    torch.testing.assert_close(smooth(values, 1), values)


def test_residuals_are_unusual_by_being_too_large_or_too_small() -> None:
    normal = torch.tensor([1.0, 2.0, 4.0])
    usual = UsualResidual.of(normal)
    found = usual.unusual(torch.tensor([7 / 3, 10.0, 0.01, 2.0]))
    logs = np.log([1.0, 2.0, 4.0])
    down = np.sqrt((logs.mean() - logs[0]) ** 2 / 3)
    expected = [0.0, (10 - 7 / 3) / np.std([1.0, 2.0, 4.0]), (logs.mean() - np.log(0.01)) / down, 0.0]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert UsualResidual.of(torch.zeros(3)).unusual(torch.zeros(3)).isfinite().all()
