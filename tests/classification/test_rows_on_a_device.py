"""Rows that stay on the model's device as a tensor: the same rows, the same SVM, the same errors."""

import numpy as np
import pytest
import torch

from whatwhere.classification import describe_images, fit_svm, protocol
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
    first, second = (protocol.evaluate(x[:60], labels[:60], x[60:], labels[60:], 10.0) for x in (host, device))
    assert first.confusion == second.confusion
