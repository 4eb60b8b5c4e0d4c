"""New images: a transfer against its parts, the ends and the middle of a morph against the examples."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import whatwhere as ww
from whatwhere.errors import ImageError, SpecError
from whatwhere.latents import Latents

SPEC = ww.ModelSpec(layers=(ww.LayerSpec(maps=3, filter_size=3), ww.LayerSpec(maps=4, filter_size=3, fan_in=2)))


@pytest.fixture(scope="module")
def examples() -> ww.Solution:
    images = torch.rand(30, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    return ww.infer(ww.DeconvNet(SPEC), images, ww.InferenceSpec(steps=5), engine="reference")


def part(solution: ww.Solution, images: slice) -> ww.Solution:
    return replace(solution, latents=solution.latents[images])


def test_transfer_takes_features_of_one_and_places_of_the_other(examples: ww.Solution) -> None:
    first, second = part(examples, slice(0, 3)), part(examples, slice(3, 6))
    decoder = ww.DeconvNet(SPEC).at(12, 12)
    expected = decoder.decode(Latents(first.latents.p, second.latents.pooling_params))
    torch.testing.assert_close(ww.transfer(first, second), expected)
    torch.testing.assert_close(ww.transfer(first, first), first.reconstruction)


def test_a_morph_begins_and_ends_at_its_images_and_is_halfway_in_the_middle(examples: ww.Solution) -> None:
    first, second = part(examples, slice(0, 3)), part(examples, slice(3, 6))
    frames = ww.morph(first, second, 5)
    assert frames.shape == (5, 3, 1, 12, 12)
    torch.testing.assert_close(frames[0], first.reconstruction)
    torch.testing.assert_close(frames[4], second.reconstruction)
    pairs = zip(first.latents.tensors(), second.latents.tensors(), strict=True)
    middle = iter([(a + b) / 2 for a, b in pairs])
    halfway = first.latents.map(lambda _: next(middle))
    torch.testing.assert_close(frames[2], ww.DeconvNet(SPEC).at(12, 12).decode(halfway))


def test_the_example_makes_new_images(examples: ww.Solution) -> None:
    generate = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "new_images.py"))["generate"]
    images = generate(examples, 5, window=2, neighbours=2)
    assert images.shape == (5, 1, 12, 12)
    assert ((images[:, None] - examples.reconstruction).flatten(2).norm(dim=2) > 0.05).all()
    same = generate(examples, 5, sweeps=0)
    assert ((same[:, None] - examples.reconstruction).flatten(2).norm(dim=2).amin(1) < 1e-4).all()


def test_what_does_not_fit_raises(examples: ww.Solution) -> None:
    with pytest.raises(ImageError, match="same number of images"):
        ww.transfer(part(examples, slice(0, 2)), part(examples, slice(0, 3)))
    with pytest.raises(ImageError, match="same number of images"):
        ww.morph(part(examples, slice(0, 2)), part(examples, slice(0, 3)))
    with pytest.raises(ImageError, match="without a decoder"):
        ww.morph(replace(examples, decoder=None), examples)
    with pytest.raises(SpecError, match="count = 1"):
        ww.morph(examples, examples, 1)
