"""Descriptors: the definition computed patch by patch, the paper's sizes, memory."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.classification import describe, describe_images, fit_svm, protocol
from whatwhere.classification.descriptors import patch_sizes
from whatwhere.data import load
from whatwhere.errors import ImageError, SpecError
from whatwhere.model import DeconvNet
from whatwhere.spec import (
    DescriptorSpec,
    InferenceSpec,
    LayerSpec,
    LearningSpec,
    ModelSpec,
    Phase,
    Recipe,
)

POOL = {
    "rms": lambda c: np.sqrt((c**2).mean((1, 2))),
    "max": lambda c: c.max((1, 2)),
    "mean": lambda c: c.mean((1, 2)),
}


def sparse_features(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.1)


def patch_by_patch(p: np.ndarray, patch: int, stride: int, cell: int, pooling: str) -> np.ndarray:
    """One image's descriptor, [B, H, W] → [D], written as the docstring says it."""
    out = []
    places = [sorted({*range(0, side - patch + 1, stride), side - patch}) for side in p.shape[1:]]
    for i in places[0]:
        for j in places[1]:
            part = p[:, i : i + patch, j : j + patch]
            starts = sorted({min(a, patch - cell) for a in range(0, patch, cell)})
            cells = [
                POOL[pooling](part[:, a : a + cell, b : b + cell]) for a in starts for b in starts
            ]
            vector = np.stack(cells, 1).ravel()
            out.append(vector / (np.linalg.norm(vector) or 1))
    whole = np.concatenate(out)
    return whole / (np.linalg.norm(whole) or 1)


@pytest.mark.parametrize("pooling", ["rms", "max", "mean"])
@pytest.mark.parametrize(("patch", "stride", "cell"), [(6, 1, 3), (6, 1, 4), (5, 2, 2), (4, 3, 4)])
def test_a_descriptor_is_what_its_definition_says(
    pooling: str, patch: int, stride: int, cell: int
) -> None:
    p = sparse_features(3, 5, 9, 8).double()
    found = describe(
        [p],
        DescriptorSpec(patch=(patch,), stride=(stride,), cell=cell, cell_statistic=pooling),
        [1],
    )  # type: ignore[arg-type]
    for image, row in zip(p.numpy(), found.numpy(), strict=True):
        np.testing.assert_allclose(
            row, patch_by_patch(image, patch, stride, cell, pooling), atol=1e-12
        )


def test_the_papers_sizes() -> None:
    assert describe([sparse_features(2, 16, 16, 16)], DescriptorSpec(), [1]).shape == (2, 9216)
    assert describe([sparse_features(2, 48, 10, 10)], DescriptorSpec(), [2]).shape == (2, 4800)


@pytest.mark.parametrize("side", [15, 35, 67, 131])  # of maps, of pictures of 48 to 512 pixels
def test_large_pictures_have_descriptors_of_the_size_that_is_asked_for(side: int) -> None:
    p = sparse_features(1, 48, side, side)
    columns = describe([p], DescriptorSpec(), [2]).shape[1]
    assert 10_000 / 2 < columns <= 10_000
    assert 1000 / 2 < describe([p], DescriptorSpec(size=1000), [2]).shape[1] <= 1000
    # a number for each map at least
    assert describe([p], DescriptorSpec(size=1), [2]).shape[1] == 48


@pytest.mark.parametrize("size", [100, 500, 2000])
def test_patches_of_every_size_cover_the_map(size: int) -> None:
    patch, stride, cell = patch_sizes(5, (40, 31), DescriptorSpec(size=size), 2)
    assert stride <= patch == 2 * cell
    p = torch.zeros(40 * 31, 1, 40, 31)
    p.flatten(1).fill_diagonal_(1)
    assert (describe([p.expand(-1, 5, -1, -1)], DescriptorSpec(size=size), [2]) > 0).any(1).all()


def test_every_descriptor_has_unit_length_and_an_empty_one_is_zero() -> None:
    first, second = sparse_features(4, 3, 9, 9), sparse_features(4, 6, 6, 6, seed=1)
    first[2], second[2] = 0, 0
    found = describe([first, second], DescriptorSpec(), [1, 2])
    np.testing.assert_allclose(found.norm(dim=1), [1, 1, 0, 1], atol=1e-6)
    parts = found.split([first.shape[1] * 9, found.shape[1] - first.shape[1] * 9], 1)
    # each layer weighs the same
    np.testing.assert_allclose(parts[0].norm(dim=1)[[0, 1, 3]], 0.5**0.5, atol=1e-6)


def test_raw_features_are_only_scaled() -> None:
    p = sparse_features(3, 4, 5, 5)
    found = describe([p], DescriptorSpec(raw=True), [1])
    np.testing.assert_allclose(
        found, (p.flatten(1) / p.flatten(1).norm(dim=1, keepdim=True)), atol=1e-6
    )


def test_a_map_smaller_than_a_patch_is_one_patch() -> None:
    assert describe([sparse_features(2, 3, 2, 1)], DescriptorSpec(), [1]).shape == (2, 3)
    assert describe([sparse_features(2, 3, 7, 4)], DescriptorSpec(patch=(5,)), [1]).shape == (
        2,
        3 * 3 * 2 * 2,
    )


# From images --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    model = ww.ModelSpec(
        layers=(ww.LayerSpec(maps=3, filter_size=3), ww.LayerSpec(maps=4, filter_size=3))
    )
    learning = (ww.LearningSpec(inference=ww.InferenceSpec()),) * 2
    return Recipe(model=model, learning=learning, inference=ww.InferenceSpec(steps=4), batch_size=4)


def images(count: int) -> torch.Tensor:
    return torch.rand(count, 1, 12, 12, generator=torch.Generator().manual_seed(0))


def test_images_are_inferred_and_described_batch_by_batch(recipe: Recipe) -> None:
    from dataclasses import replace

    model, v = ww.DeconvNet(recipe.model), images(10)
    both = replace(recipe, descriptor=DescriptorSpec(layers=(1, 2), patch=(4, 3), cell=2))
    counted: list[int] = []
    found = describe_images(model, v, both, engine="reference", progress=counted.append)
    plans = ((Phase(layer=1, update_pooling=(1,)),), (Phase(layer=2, update_pooling=(1, 2)),))
    features = [
        ww.infer(model, v, recipe.inference, plan, engine="reference").features for plan in plans
    ]
    np.testing.assert_allclose(found, describe(features, both.descriptor, (1, 2)), atol=1e-6)
    assert counted == [4, 4, 2]


def test_no_images_and_no_such_layer_are_refused(recipe: Recipe) -> None:
    from dataclasses import replace

    one_layer = ww.DeconvNet(ww.ModelSpec(layers=recipe.model.layers[:1]))
    with pytest.raises(ImageError, match="an empty set of images"):
        describe_images(one_layer, images(0), recipe)
    with pytest.raises(SpecError, match="Cannot describe layer 2: the model has 1 layer"):
        describe_images(
            one_layer, images(2), replace(recipe, descriptor=DescriptorSpec(layers=(2,)))
        )


# Rows that stay on the model's device as a tensor: the same rows, the same SVM, the same errors ---


@pytest.fixture(scope="module")
def rows():
    inference = InferenceSpec(steps=2)
    recipe = Recipe(
        model=ModelSpec(layers=(LayerSpec(maps=3),)),
        learning=(LearningSpec(inference=inference),),
        inference=inference,
        descriptor=DescriptorSpec(patch=(8,), cell=4),
        batch_size=32,
    )
    model, images = DeconvNet(recipe.model), load("digits").subset(np.arange(100))
    host, device = (
        describe_images(model, images, recipe, engine="reference", on_device=on_device)
        for on_device in (False, True)
    )
    return host, device, images.labels


def test_the_rows_are_the_same(rows):
    host, device, _ = rows
    assert isinstance(device, torch.Tensor)
    np.testing.assert_array_equal(device.numpy(), host)


def test_the_svm_is_the_same(rows):
    host, device, labels = rows
    first, second = (fit_svm(x, labels, 10.0) for x in (host, device))
    np.testing.assert_allclose(second.weights, first.weights, atol=1e-4)
    np.testing.assert_allclose(second.decision(device), first.decision(host), atol=1e-3)
    np.testing.assert_array_equal(second.predict(device), first.predict(host))


def test_the_protocol_takes_them(rows):
    host, device, labels = rows
    first, second = (protocol.choose(x, labels, grid=(1.0, 10.0)) for x in (host, device))
    assert first == second
    first, second = (
        protocol.evaluate(x[:60], labels[:60], x[60:], labels[60:], 10.0) for x in (host, device)
    )
    assert first.confusion == second.confusion


def test_steps_are_those_of_infer() -> None:
    model, digits = ww.load("mnist"), load("digits")[:3]
    for steps in ("learned", 2):
        features = ww.infer(model, digits, steps=steps, engine="reference").features
        found = describe_images(model, digits, steps=steps, engine="reference")
        np.testing.assert_allclose(found, describe([features], DescriptorSpec(), [2]), atol=1e-6)
