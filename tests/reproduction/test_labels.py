"""The study of labels through inference: its descriptor, its network, and where gradients go."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

import whatwhere as ww
from reproduction.studies.labels import (
    DESCRIPTOR,
    VARIANTS,
    Labelled,
    Network,
    Variant,
    chosen_batches,
    half_heads,
    hinge,
    learn,
    patches_of,
    rows_of,
    spread,
    teach,
)
from whatwhere.classification import describe


@pytest.fixture(scope="module")
def digits() -> Labelled:
    train = ww.data.load("digits").subset(np.arange(40))
    return Labelled.of(train, train, "cpu")


@pytest.fixture
def network() -> Network:
    return Network(ww.load("mnist"), steps=1)


def test_the_rows_are_those_of_the_tables_and_have_a_gradient() -> None:
    p = torch.rand(2, 48, 10, 10)
    patches = patches_of((48, 10, 10), p.device)
    torch.testing.assert_close(
        rows_of(p, patches), describe([p], DESCRIPTOR, [2]), atol=1e-3, rtol=0.01
    )
    empty = torch.zeros(1, 48, 10, 10, requires_grad=True)
    rows_of(empty, patches).sum().backward()
    assert empty.grad is not None
    assert empty.grad.isfinite().all()


def test_the_loss_is_that_of_the_svm() -> None:
    scores = torch.tensor([[2.0, -0.5, -3.0], [0.0, 0.0, 0.0]])
    assert hinge(scores, torch.tensor([0, 1])).tolist() == [0.25, 3.0]


@torch.no_grad()
def test_an_image_is_judged_by_an_svm_that_has_not_seen_it(
    network: Network, digits: Labelled
) -> None:
    half = torch.arange(40) % 2
    rows, _ = network.describe(digits.images)
    heads = half_heads(network, digits, half, C=100.0)
    wrong = {}
    for side, (w, b) in enumerate(heads):
        predicted = (rows @ w.T + b).argmax(1)
        wrong[side] = [
            float((predicted != digits.targets)[half == each].float().mean())
            for each in (side, 1 - side)
        ]
    assert all(own == 0 < other for own, other in wrong.values()), wrong


@torch.no_grad()
@pytest.mark.parametrize("name", ["held out", "published"])
def test_labels_move_filters_and_steps_and_the_filters_stay_what_they_are(
    network: Network, digits: Labelled, name: str
) -> None:
    variant = replace(VARIANTS[name], epochs=1, batch_size=20, filter_rate=0.01)
    before = [f.clone() for f in network.filters]
    sizes = network.unrolled.log_sizes.clone()
    (epoch,) = learn(network, variant, digits, seed=0, limit=60)
    assert epoch["hinge"] > 0
    assert not torch.equal(sizes, network.unrolled.log_sizes)
    for k, (old, new) in enumerate(zip(before, network.filters, strict=True), start=1):
        assert not torch.equal(old, new)
        torch.testing.assert_close(new, network.model.project(k, new))


def test_labels_spread_along_the_graph_to_the_images_that_lie_with_them() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(3, 8).repeat_interleave(20, 0)
    rows = torch.nn.functional.normalize(
        centres + 0.1 * torch.rand(60, 8, generator=generator), dim=1
    )
    scores = spread(rows, torch.tensor([0, 20, 40]), torch.tensor([4, 5, 6]), neighbours=5)
    assert scores.argmax(1).tolist() == [4] * 20 + [5] * 20 + [6] * 20


@torch.no_grad()
@pytest.mark.parametrize("teacher", ["graph", "svm"])
def test_a_teacher_labels_the_images_that_it_is_surest_of(
    network: Network, teacher: Literal["graph", "svm"]
) -> None:
    train = ww.data.load("digits").subset(np.arange(60))
    data = Labelled.of(train, train, "cpu", 20)
    taught = teach(network, Variant(teacher=teacher, trusted=0.5), data)
    assert 20 <= len(taught.images) < 60
    assert len(taught.images) == len(taught.targets)
    kept = {
        image.numpy().tobytes(): int(t)
        for image, t in zip(taught.images, taught.targets, strict=True)
    }
    for image, label in zip(data.images, data.labels, strict=True):
        assert kept[image.numpy().tobytes()] == label, "an image with a label keeps it"
    torch.testing.assert_close(train[: len(train)][taught.index], taught.images)


def test_a_pass_visits_the_images_with_a_loss_and_few_others() -> None:
    hard = torch.arange(200) % 4 == 0
    generator = torch.Generator().manual_seed(0)
    batches = chosen_batches(hard, 0.2, 10, generator)
    assert batches.shape[1] == 10
    visited = batches.flatten()
    assert len(visited.unique()) == len(visited)
    assert len(visited[hard[visited]]) > 50 - 10, "but for the last batch, which is not full"
    assert 10 < len(visited[~hard[visited]]) < 50
    none = chosen_batches(torch.zeros(200, dtype=torch.bool), 0.0, 10, generator)
    assert none.shape == (1, 10)
