"""Where tiles lie: every pixel and every feature is taken from one tile, far from its borders."""

import pytest
import torch

from examples import SPECS
from whatwhere.errors import SpecError
from whatwhere.inference.tile_grid import LayerPlaces, TileAxis, TileGrid
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet

AXES = [(97, 64, 16, 4), (100, 48, 20, 2), (65, 64, 32, 1), (1000, 128, 100, 6), (64, 64, 8, 2), (131, 40, 30, 3)]


@pytest.mark.parametrize(("length", "tile", "overlap", "stride"), AXES)
def test_tiles_are_aligned_and_cover_the_picture(length: int, tile: int, overlap: int, stride: int) -> None:
    axis = TileAxis.split(length, tile, overlap, stride)
    assert axis.size <= tile
    assert all(start % stride == 0 for start in axis.starts)
    assert axis.starts[0] == 0
    assert axis.starts[-1] + axis.size == length
    shared = [left + axis.size - right for left, right in zip(axis.starts, axis.starts[1:], strict=False)]
    assert min(shared, default=overlap) >= overlap


@pytest.mark.parametrize(("length", "tile", "overlap", "stride"), AXES)
def test_shares_add_to_one_and_are_zero_near_the_borders(length: int, tile: int, overlap: int, stride: int) -> None:
    axis = TileAxis.split(length, tile, overlap, stride)
    total = torch.zeros(length, dtype=torch.float64)
    for i, start in enumerate(axis.starts):
        share = axis.weights(i)
        total[start : start + axis.size] += share
        margin = overlap // 2 - axis.ramp
        if i > 0:
            assert (share[:margin] == 0).all()
        if i < len(axis.starts) - 1 and margin:
            assert (share[-margin:] == 0).all()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SPECS)
def test_every_feature_is_taken_from_one_tile_that_has_it(name: str) -> None:
    model = DeconvNet(SPECS[name])
    for axis in (0, 1):
        check_features_of_tiles(model, axis)


def check_features_of_tiles(model: DeconvNet, along: int) -> None:
    def regions(length: int, k: int) -> int:
        return model.at(*((length, 8) if along == 0 else (8, length))).regions[k - 1].grid[1 + along]

    stride = LayerPlaces.of(model.spec, along)[-1].stride
    tile, length = 24 + 4 * stride, 5 * stride + 90
    axis = TileAxis.split(length, tile, 12, stride)
    for k, places in enumerate(LayerPlaces.of(model.spec, along)):
        count = length if k == 0 else regions(length, k)
        in_tile = axis.size if k == 0 else regions(axis.size, k)
        taken = []
        for i, start in enumerate(axis.starts):
            first, last = axis.core(i, places, count)
            assert 0 <= first - start // places.stride < last - start // places.stride <= in_tile
            taken += range(first, last)
        assert taken == list(range(count))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "name", ["1 layer", "2 layers", "2 layers, 3×3 regions", "2 layers, overlapping", "2 layers, rectangular"]
)
def test_a_feature_is_centred_where_it_reconstructs(name: str, axis: int) -> None:
    """The centroid of what one feature reconstructs with flat filters and flat pooling."""
    spec = SPECS[name]
    model = DeconvNet(spec, dtype=torch.float64)
    filters = [torch.ones_like(f) for f in model.filters]
    model = DeconvNet.from_parts(spec, filters, model.connectivity)
    sized = model.at(80, 80)
    for k, places in enumerate(LayerPlaces.of(spec, axis)[1:], start=1):
        if spec.layers[0].pool_stride is not None and k > 1:
            continue  # where regions overlap, features of one layer are not of equal weight in the one below
        thetas = tuple(
            PoolingParams(*(torch.zeros(1, len(r.axes), *r.grid, dtype=torch.float64),) * 2) for r in sized.regions[:k]
        )
        grid = sized.regions[k - 1].grid
        p, j = torch.zeros(1, *grid, dtype=torch.float64), grid[1 + axis] // 2
        p[0, 0, grid[1] // 2, grid[2] // 2] = 1
        line = sized.decode(Latents(p, thetas))[0].sum((0, 2 - axis))
        centre = float((line * torch.arange(80)).sum() / line.sum())
        assert centre == pytest.approx(places.stride * j + places.offset)


def test_a_tile_that_is_all_overlap_is_an_error() -> None:
    with pytest.raises(SpecError, match="tile = 64 and overlap = 62 were given; expected a tile of at least 70"):
        TileGrid.of(SPECS["2 layers"], 200, 200, tile=64, overlap=62)
