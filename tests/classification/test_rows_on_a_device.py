"""Rows that stay on the model's device as a tensor: the same rows, the same SVM, the same errors."""

import numpy as np
import pytest
import torch
from scipy import sparse

from whatwhere.classification import describe_images, fit_svm, protocol, side_by_side
from whatwhere.data import load
from whatwhere.model import DeconvNet
from whatwhere.spec import DescriptorSpec, InferenceSpec, LayerSpec, LearningSpec, ModelSpec, Recipe


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
        describe_images(model, images, recipe, engine="reference", on_device=on_device) for on_device in (False, True)
    )
    return host if isinstance(host, np.ndarray) else host.toarray(), device, images.labels


def test_the_rows_are_the_same(rows):
    host, device, _ = rows
    assert isinstance(device, torch.Tensor)
    np.testing.assert_array_equal(device.numpy(), host)


@pytest.mark.parametrize("kinds", [("dense", "dense"), ("dense", "sparse"), ("sparse", "sparse"), ("tensor", "tensor")])
def test_rows_side_by_side_are_of_unit_length_whatever_holds_them(rows, kinds):
    make = {"dense": np.asarray, "sparse": sparse.csr_array, "tensor": torch.from_numpy}
    parts = [rows[0], rows[0][:, ::-1].copy()]
    found = side_by_side([make[kind](part) for kind, part in zip(kinds, parts, strict=True)])
    assert isinstance(found, {"tensor": torch.Tensor, "sparse": sparse.csr_array, "dense": np.ndarray}[kinds[1]])
    found = found.toarray() if sparse.issparse(found) else np.asarray(found)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(found * np.sqrt(2), np.concatenate(parts, 1), rtol=1e-6)


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
def test_the_svm_is_the_same(rows, solver):
    host, device, labels = rows
    first, second = (fit_svm(x, labels, 10.0, solver=solver) for x in (host, device))
    np.testing.assert_allclose(second.weights, first.weights, atol=1e-4)
    np.testing.assert_allclose(second.decision(device), first.decision(host), atol=1e-3)
    np.testing.assert_array_equal(second.predict(device), first.predict(host))


def test_the_protocol_takes_them(rows):
    host, device, labels = rows
    first, second = (protocol.choose({"": x}, labels, grid=(1.0, 10.0)) for x in (host, device))
    assert first == second
    first, second = (protocol.evaluate(x[:60], labels[:60], x[60:], labels[60:], 10.0) for x in (host, device))
    assert (first.solver, second.solver) == ("liblinear", "newton")
    assert first.confusion == second.confusion
