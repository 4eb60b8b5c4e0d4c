"""A picture inferred in tiles gives what the whole picture gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from examples import SPECS, random_images, random_mask
from raising import raises
from whatwhere.errors import (
    ConvergenceWarning,
    InvalidSetting,
    NotFinite,
    WrongShape,
)
from whatwhere.inference import infer, infer_tiled, resolve_lam
from whatwhere.inference.tiled import TileAxis, TileGrid, TileImages, infer_tiles
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet
from whatwhere.model.sized import LayerPlaces
from whatwhere.spec import (
    AutoLam,
    Fixed,
    InferenceSpec,
    InputSpec,
    LayerSpec,
    LineSearch,
    ModelSpec,
)

# nothing further away than a few pixels has any influence
LOCAL = InferenceSpec(step=Fixed(), steps=2)
TILES = {"tile": 56, "overlap": 44}


def case(
    name: str, stage: InputSpec | None = None, height: int = 75, width: int = 80
) -> tuple[DeconvNet, torch.Tensor]:
    spec = (
        SPECS[name]
        if stage is None
        else replace(SPECS[name], input=stage, nonnegative=stage.kind != "highpass")
    )
    return DeconvNet(spec, dtype=torch.float64), random_images(
        spec, n=1, height=height, width=width
    )


@pytest.mark.parametrize(
    "name",
    [
        "1 layer",
        "2 layers",
        "2 layers, overlapping",
        "2 layers, rectangular",
        "2 layers, 3-D pooling",
        "2 layers, max",
    ],
)
def test_tiles_give_the_latents_of_the_whole(name: str) -> None:
    model, v = case(name)
    whole = infer(model, v, LOCAL, engine="reference")
    far = {"tile": 68, "overlap": 56}  # rectangular features reach further
    tiled = infer_tiled(
        model, v[0], LOCAL, engine="reference", **(far if "rectangular" in name else TILES)
    )
    assert tiled.tiles > 3
    latents = tiled.latents.dense()
    torch.testing.assert_close(latents.p, whole.features, rtol=0, atol=1e-12)
    torch.testing.assert_close(tiled.reconstruction, whole.reconstruction[0], rtol=0, atol=1e-7)
    torch.testing.assert_close(
        model.at(*v.shape[2:]).decode(latents), whole.reconstruction, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    "stage",
    [
        InputSpec(kind="onoff", sigma=4.0, contrast=0.7, contrast_sigma=2.0),
        InputSpec(kind="highpass", sigma=6.0),
        InputSpec(contrast=1.0, contrast_sigma=6.0),
    ],
    ids=["onoff, contrast", "highpass", "contrast"],
)
@pytest.mark.parametrize("masked", ["", "weights per channel", "nan"])
def test_input_stage_and_mask_travel_with_the_tiles(stage: InputSpec, masked: str) -> None:
    model, v = case("1 layer, colour", stage)
    mask = None if masked == "nan" else random_mask(v, masked)
    if masked == "nan":
        v[:, :, 20:26, 15:40] = torch.nan  # no wider than every stage reaches
    whole = infer(model, v, LOCAL, mask=mask, engine="reference")
    tiled = infer_tiled(
        model, v[0], LOCAL, mask=None if mask is None else mask[0], engine="reference", **TILES
    )
    latents = tiled.latents.dense()
    torch.testing.assert_close(latents.p, whole.features, rtol=0, atol=1e-12)
    torch.testing.assert_close(tiled.reconstruction, whole.reconstruction[0], rtol=0, atol=1e-9)
    for ours, theirs in zip(
        latents.background.tensors(), whole.latents.background.tensors(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        model.at(75, 80).decode(latents), whole.reconstruction, rtol=0, atol=1e-9
    )


def test_a_tile_without_a_known_pixel_has_no_features_and_unknown_values_no_influence() -> None:
    model, v = case("1 layer")
    mask = torch.ones(1, 75, 80)
    mask[:, :, :60] = 0
    first = infer_tiled(model, v[0], LOCAL, mask=mask, engine="reference", **TILES)
    other = torch.where(mask == 0, 0.25, v[0])
    second = infer_tiled(model, other, LOCAL, mask=mask, engine="reference", **TILES)
    for ours, theirs in zip(
        first.latents.dense().tensors(), second.latents.dense().tensors(), strict=True
    ):
        assert torch.equal(ours, theirs)
    assert first.latents.dense().p[..., :28].count_nonzero() == 0
    assert first.latents.nonzeros > 0


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_a_picture_in_tiles_equals_the_whole_to_1e_minus_5(engine: str) -> None:
    """96² in four tiles of 72², 30 steps, float32: a border has no influence at the middle of the
    overlap."""
    generator = torch.Generator().manual_seed(0)
    spec = ModelSpec(layers=(LayerSpec(maps=8, filter_size=5),), nonnegative=False)
    model = DeconvNet(spec, seed=0)
    v = (
        torch.nn.functional.avg_pool2d(torch.rand(1, 1, 100, 100, generator=generator), 5, stride=1)
        - 0.5
    )
    inference = InferenceSpec(step=Fixed(), steps=30, pooling_step=0.5)
    whole = infer(model, v, inference, engine=engine)
    tiled = infer_tiled(model, v[0].numpy(), inference, engine=engine, tile=72, overlap=48)
    assert tiled.tiles == 4
    assert tiled.engine == engine
    assert 0.01 < whole.features.count_nonzero() / whole.features.numel() < 0.9
    torch.testing.assert_close(tiled.latents.dense().p, whole.features, rtol=0, atol=1e-5)
    torch.testing.assert_close(tiled.reconstruction, whole.reconstruction[0], rtol=0, atol=1e-5)


def test_a_picture_may_be_read_window_by_window() -> None:
    model, v = case("1 layer")
    whole, pixels = v[0].numpy(), []

    class Lazy:
        shape = whole.shape

        def __getitem__(self, window: tuple[slice, slice, slice]) -> np.ndarray:
            pixels.append(whole[window].size)
            return whole[window]

    tiled = infer_tiled(model, Lazy(), LOCAL, engine="reference", **TILES)
    expected = infer_tiled(model, v[0], LOCAL, engine="reference", **TILES)
    assert torch.equal(tiled.reconstruction, expected.reconstruction)
    assert max(pixels) <= 56 * 56


def test_what_is_not_one_picture_is_an_error() -> None:
    model, v = case("1 layer")
    with raises(WrongShape, name="a picture", given=(2, 1, 75, 80)):
        infer_tiled(model, torch.cat([v, v]), LOCAL)
    with raises(WrongShape, name="a mask", given=(1, 75, 79), expected="[1, 75, 80]"):
        infer_tiled(model, v[0], LOCAL, mask=torch.ones(1, 75, 79))
    with pytest.raises(NotFinite):
        infer_tiled(model, v[0] / 0, LOCAL)
    with raises(InvalidSetting, given="step.per = 'batch' for tiles"):
        infer_tiled(model, v[0], replace(LOCAL, step=LineSearch(per="batch")))


def test_lam_is_chosen_once_for_the_picture() -> None:
    """By all tiles: flat ones have the same λ as the others."""
    model, v = case("1 layer")
    noise = torch.randn(v.shape, generator=torch.Generator().manual_seed(3), dtype=v.dtype)
    v = 0.5 + 0.02 * noise
    v[..., :20] += 0.3
    spec = replace(LOCAL, lam=AutoLam(share=0.1))
    tiles = TileImages(v[0], TileGrid.of(model.spec, 75, 80, **TILES))
    resolved = resolve_lam(model, tiles, spec)
    assert isinstance(resolved.lam, float)
    expected = infer_tiled(model, v[0], resolved, engine="reference", **TILES)
    tiled = infer_tiled(model, v[0], spec, engine="reference", **TILES)
    assert torch.equal(tiled.reconstruction, expected.reconstruction)


def test_tiles_that_did_not_converge_are_reported_once() -> None:
    model, v = case("1 layer")
    with pytest.warns(ConvergenceWarning) as warned:
        infer_tiled(model, v[0], replace(LOCAL, tolerance=1e-9), engine="reference", **TILES)
    said = [warning.message for warning in warned]
    assert [(one.measure, one.unfinished, one.images) for one in said] == [("tolerance", 9, 9)]


def test_all_tiles_have_the_engine_that_suits_most_of_them() -> None:
    """Coordinate descent suits sparse codes. A single loud tile, whose code is dense, does not load
    another engine."""
    pytest.importorskip("numba", reason="numba is not installed")
    model = DeconvNet(ModelSpec.signals(maps=6, length=16, pool_size=1))
    noise = np.random.default_rng(0).normal(size=(1, 1, 4000)).astype(np.float32)
    noise[..., 1500:1700] *= 100
    spec = InferenceSpec.coding(lam=0.5)

    def engines(recording: np.ndarray, engine: str = "auto") -> list[str]:
        tiles = infer_tiles(model, recording, spec, tile=400, overlap=64, engine=engine)
        return [tile.engine for tile in tiles]

    loud = engines(noise[..., 1400:1800])
    assert loud == ["cpu"]
    assert set(engines(noise)) == {"greedy"}
    assert set(engines(100 * noise)) == {"cpu"}
    assert set(engines(noise, "cpu")) == {"cpu"}


# Where tiles lie: every pixel and every feature is taken from one tile, far from its borders ------


AXES = [
    (97, 64, 16, 4),
    (100, 48, 20, 2),
    (65, 64, 32, 1),
    (1000, 128, 100, 6),
    (64, 64, 8, 2),
    (131, 40, 30, 3),
]


@pytest.mark.parametrize(("length", "tile", "overlap", "stride"), AXES)
def test_tiles_are_aligned_and_cover_the_picture(
    length: int, tile: int, overlap: int, stride: int
) -> None:
    axis = TileAxis.split(length, tile, overlap, stride)
    assert axis.size <= tile
    assert all(start % stride == 0 for start in axis.starts)
    assert axis.starts[0] == 0
    assert axis.starts[-1] + axis.size == length
    shared = [
        left + axis.size - right for left, right in zip(axis.starts, axis.starts[1:], strict=False)
    ]
    assert min(shared, default=overlap) >= overlap


@pytest.mark.parametrize(("length", "tile", "overlap", "stride"), AXES)
def test_shares_add_to_one_and_are_zero_near_the_borders(
    length: int, tile: int, overlap: int, stride: int
) -> None:
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
        return (
            model.at(*((length, 8) if along == 0 else (8, length))).regions[k - 1].grid[1 + along]
        )

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
    "name",
    [
        "1 layer",
        "2 layers",
        "2 layers, 3×3 regions",
        "2 layers, overlapping",
        "2 layers, rectangular",
    ],
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
            # where regions overlap, features of one layer are not of equal weight in the one below
            continue
        thetas = tuple(
            PoolingParams(*(torch.zeros(1, len(r.axes), *r.grid, dtype=torch.float64),) * 2)
            for r in sized.regions[:k]
        )
        grid = sized.regions[k - 1].grid
        p, j = torch.zeros(1, *grid, dtype=torch.float64), grid[1 + axis] // 2
        p[0, 0, grid[1] // 2, grid[2] // 2] = 1
        line = sized.decode(Latents(p, thetas))[0].sum((0, 2 - axis))
        centre = float((line * torch.arange(80)).sum() / line.sum())
        assert centre == pytest.approx(places.stride * j + places.offset)


def test_a_tile_that_is_all_overlap_is_an_error() -> None:
    with raises(InvalidSetting, given={"tile": 64, "overlap": 62}) as caught:
        TileGrid.of(SPECS["2 layers"], 200, 200, tile=64, overlap=62)
    assert caught.value.expected.startswith("a tile of at least 70 pixels")
