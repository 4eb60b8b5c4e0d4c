"""Names of columns: each column responds to the map and the place that its name says."""

import re

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.classification import column_names, describe
from whatwhere.classification.anywhere import describe_where
from whatwhere.spec import DescriptorSpec, LayerSpec, ModelSpec


@pytest.mark.parametrize(
    "spec",
    [
        DescriptorSpec(),
        DescriptorSpec(layers=(1, 2)),
        DescriptorSpec(patch=(5, 4), stride=(2,), cell=2),
        DescriptorSpec(raw=True),
    ],
)
def test_a_feature_reaches_the_columns_whose_names_contain_its_place(spec: DescriptorSpec) -> None:
    model = ww.DeconvNet(ModelSpec(layers=(LayerSpec(maps=2), LayerSpec(maps=3))))
    names = column_names(model, 24, 20, spec)
    regions = model.at(24, 20).regions
    layers = spec.layers or (2,)
    for k in layers:
        B, H, W = regions[k - 1].grid
        for b, y, x in ((0, 0, 0), (B - 1, H - 1, 2), (1, 3, W - 1)):
            features = [torch.zeros(1, *regions[j - 1].grid) for j in layers]
            features[layers.index(k)][0, b, y, x] = 1
            row = describe(features, spec, layers)[0]
            assert len(names) == len(row)
            found = {names[i] for i in row.nonzero().flatten().tolist()}
            assert found == {name for name in names if _contains(name, (k, b, y, x), spec, (H, W))}


def _contains(
    name: str, place: tuple[int, int, int, int], spec: DescriptorSpec, extents: tuple[int, int]
) -> bool:
    layer, b, y, x = place
    if spec.raw:
        return name == f"layer{layer}_map{b}_row{y}_column{x}"
    of = re.fullmatch(r"layer(\d+)_map(\d+)_patch(\d+)x(\d+)_cell(\d+)x(\d+)", name)
    assert of
    at_layer, at_map, _, _, top, left = map(int, of.groups())
    patch = spec.patch[min(layer, len(spec.patch)) - 1]
    rows, columns = (min(spec.cell, patch, extent) for extent in extents)
    inside = top <= y < top + rows and left <= x < left + columns
    return (at_layer, at_map) == (layer, b) and inside


def test_names_are_unique_and_cover_what_is_anywhere() -> None:
    model = ww.DeconvNet(ModelSpec(layers=(LayerSpec(maps=3, filter_size=3),)))
    images = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    for where in ("keep", "forget", "both"):
        spec = DescriptorSpec(where=where)
        recipe = ww.override(ww.Recipe.paper(model.spec), {"inference": {"steps": 2}})
        recipe = ww.override(recipe, {"descriptor": {"where": where}})
        rows = describe_where(model, images, recipe, engine="reference")
        names = column_names(model, 16, 16, spec)
        assert len(names) == len(set(names)) == rows.shape[1]
    assert names[-6:] == [f"layer1_map{b}_scale{s}" for s in (1, 2) for b in range(3)]


def test_the_estimator_names_its_columns() -> None:
    images = np.random.default_rng(0).random((6, 12, 12), dtype=np.float32)
    features = ww.DeconvNetFeatures(
        maps=3, epochs=1, training_steps=2, steps=2, engine="reference"
    ).fit(images)
    names = features.get_feature_names_out()
    assert list(names) == column_names(features.model_, 12, 12)
    assert features.transform(images).shape == (6, len(names))
