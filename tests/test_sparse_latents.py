"""Latents of one picture without what does not count: nothing that reconstructs is lost."""

import torch

from examples import SPECS, random_images, random_latents
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.inference.tiled import finish_tile
from whatwhere.latents import Latents, SparseLatents, SparseMap
from whatwhere.model import DeconvNet


def sparsified(name: str) -> tuple[DeconvNet, Latents, SparseLatents]:
    """A picture with few features, as one tile."""
    model = DeconvNet(SPECS[name], dtype=torch.float64)
    images = random_images(model.spec, n=1, height=40, width=36)
    latents = random_latents(model, images)
    assert latents.p is not None
    rare = torch.rand(latents.p.shape, generator=torch.Generator().manual_seed(4)) > 0.98
    latents = Latents(latents.p * rare, latents.pooling_params)
    grid = TileGrid.of(model.spec, 40, 36, tile=40, overlap=0)
    return model, latents, finish_tile(model, grid, (0, 0), latents, "reference").latents


def test_the_reconstruction_is_the_same_and_most_regions_are_left_out() -> None:
    model, latents, sparse = sparsified("2 layers, 3×3 regions")  # in 2×2 regions only γ μ counts
    dense = sparse.dense()
    torch.testing.assert_close(dense.p, latents.p, rtol=0, atol=0)
    torch.testing.assert_close(model.at(40, 36).decode(dense), model.at(40, 36).decode(latents), rtol=0, atol=1e-14)
    assert sparse.nonzeros == int((latents.p != 0).sum())
    for layer, theta in zip(sparse.where, latents.pooling_params, strict=True):
        assert 0 < len(layer.indices) < theta.mu[:, 0].numel()


def test_places_of_a_tile_are_places_of_the_picture() -> None:
    values = torch.arange(24.0).view(1, 2, 3, 4)
    part = SparseMap.of(values, values[0] % 5 == 0, (2, 10, 20), corner=(4, 7))
    expected = torch.zeros(2, 10, 20)
    expected[:, 4:7, 7:11] = torch.where(values[0] % 5 == 0, values[0], 0)
    torch.testing.assert_close(part.dense()[0], expected)


def test_parts_are_joined() -> None:
    _, latents, sparse = sparsified("2 layers, 3-D pooling")
    grids = [layer.grid for layer in (sparse.features, *sparse.where)]

    def half(layer: SparseMap, upper: bool) -> SparseMap:
        keep = (layer.indices < 7) == upper
        return SparseMap(layer.grid, layer.indices[keep], layer.values[keep])

    parts = [
        SparseLatents(half(sparse.features, upper), tuple(half(layer, upper) for layer in sparse.where))
        for upper in (True, False)
    ]
    joined = SparseLatents.cat(parts)
    assert [layer.grid for layer in (joined.features, *joined.where)] == grids
    for ours, theirs in zip(joined.dense().tensors(), sparse.dense().tensors(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    torch.testing.assert_close(joined.dense().p, latents.p)
