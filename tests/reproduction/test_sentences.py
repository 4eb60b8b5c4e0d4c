"""Claims of the paper's text, measured with a small model and a few digits."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from reproduction import sentences
from reproduction.claims import FAILS, HOLDS, OPEN, WITHIN_SEEDS
from reproduction.sentences import (
    SENTENCES,
    WITHIN_IMAGES,
    Material,
    change_when_moved,
    descend,
    effective_pixels,
    transformed,
    verdict,
)
from whatwhere import DeconvNet, data, infer, load
from whatwhere.spec import Recipe

BELOW = {one.name: one for one in SENTENCES}


@cache
def shipped(name: str) -> DeconvNet:
    return load("mnist")


@pytest.fixture(scope="module")
def material() -> Material:
    """The shipped model in place of all published ones, and few steps."""
    recipe = Recipe.paper()
    inference = replace(recipe.inference, steps=4)
    return Material(
        replace(recipe, inference=inference),
        data.load("digits", split="test")[:3],
        shipped,
        lambda name: None,
        searched=2,
    )


def test_a_dot_has_one_effective_pixel_and_a_flat_filter_all() -> None:
    dot = torch.zeros(1, 2, 5, 5)
    dot[0, 0, 1, 2] = 3
    dot[0, 1] = 0.5
    assert effective_pixels(dot).tolist() == [[1, 25]]


def test_without_a_search_the_descent_is_that_of_the_program(material: Material) -> None:
    model, spec = shipped(""), material.recipe.inference
    with torch.no_grad():
        expected = infer(model, material.images, spec, engine="reference").stats.cost
        torch.testing.assert_close(
            descend(model, material.images, spec, search=False), expected, rtol=1e-4, atol=1e-4
        )
        searched = descend(model, material.images, spec, search=True)
    assert torch.equal(searched[0], expected[0])
    assert not torch.allclose(searched[-1], expected[-1])


def test_images_are_moved_to_the_right_and_scaled() -> None:
    v = torch.zeros(1, 1, 9, 9)
    v[0, 0, 4, 4] = 1
    assert transformed(v, shift=2)[0, 0, 4, 6] == pytest.approx(1, abs=1e-5)
    assert torch.allclose(transformed(v), v, atol=1e-6)
    assert transformed(v, scale=2).sum() == pytest.approx(4, abs=0.1)


def test_features_change_more_the_farther_an_image_moves(material: Material) -> None:
    with torch.no_grad():
        near, far = (change_when_moved(material, shift=shift) for shift in (0.25, 2.0))
        still = change_when_moved(material, shift=0.0)
    for name in ("Gaussian pooling", "max pooling"):
        assert sum(still[name]) < sum(near[name]) < sum(far[name])


@pytest.mark.parametrize(
    ("low", "high", "seeds", "images"),
    [
        ([1.0, 1.1], [2.0, 2.1], HOLDS, HOLDS),
        ([2.0, 2.1], [1.0, 1.1], FAILS, FAILS),
        ([1.0, 2.0], [1.5, 1.6], WITHIN_SEEDS, WITHIN_IMAGES),
        ([1.0, 9.0], [1.1, 9.1], WITHIN_SEEDS, HOLDS),  # every image gains
        ([], [1.0], OPEN, OPEN),
        ([1.0], [2.0], HOLDS, HOLDS),
    ],
)
def test_verdicts(low: list[float], high: list[float], seeds: str, images: str) -> None:
    of_seeds = replace(BELOW["dots"], below=("a", "b"))
    of_images = replace(BELOW["sharp"], below=("a", "b"))
    assert verdict(of_seeds, {"a": low, "b": high}) == seeds
    assert verdict(of_images, {"a": low, "b": high}) == images


def test_published_sentences_are_those_of_the_program() -> None:
    results = Path(sentences.__file__).parent / "results"
    for scale in ("paper", "quick"):
        found = sentences.read(results / scale)
        assert found is not None
        assert list(found) == [one.name for one in SENTENCES]
