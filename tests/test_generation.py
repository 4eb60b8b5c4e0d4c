"""Generating: windows against slices written out, ends of a morph against the examples, novelty,
co-occurrence."""

from dataclasses import replace

import pytest
import torch

import whatwhere as ww
from raising import raises
from whatwhere import generation
from whatwhere.errors import InvalidImages, InvalidSetting, WrongShape
from whatwhere.latents import Background, Latents, PoolingParams

SPEC = ww.ModelSpec(
    layers=(ww.LayerSpec(maps=3, filter_size=3), ww.LayerSpec(maps=4, filter_size=3, fan_in=2))
)


@pytest.fixture(scope="module")
def examples() -> ww.Solution:
    images = torch.rand(30, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    return ww.infer(ww.DeconvNet(SPEC), images, ww.InferenceSpec(steps=5), engine="reference")


def part(solution: ww.Solution, images: slice) -> ww.Solution:
    return replace(solution, latents=solution.latents[images])


def test_without_sweeps_every_image_is_an_example(examples: ww.Solution) -> None:
    images = ww.generate(examples, 5, sweeps=0)
    assert images.shape == (5, 1, 12, 12)
    distances = (images[:, None] - examples.reconstruction).flatten(2).norm(dim=2)
    assert (distances.amin(1) < 1e-4).all()


def test_images_are_new_and_follow_the_seed(examples: ww.Solution) -> None:
    images = ww.generate(examples, 5, window=2, neighbours=2)
    distances = (images[:, None] - examples.reconstruction).flatten(2).norm(dim=2)
    assert (distances.amin(1) > 0.05).all()
    assert torch.equal(images, ww.generate(examples, 5, window=2, neighbours=2))
    assert not torch.equal(images, ww.generate(examples, 5, window=2, neighbours=2, seed=1))


def test_features_that_occur_together_are_generated_together(examples: ww.Solution) -> None:
    """Of two kinds of codes, features everywhere on map 0 or everywhere on map 1, no new one mixes
    the maps."""
    p = torch.zeros_like(examples.features)
    p[::2, 0], p[1::2, 1] = 1, 1
    kinds = replace(
        examples,
        latents=replace(examples.latents[:1].map(lambda t: t.expand(30, *t.shape[1:])), p=p),
    )
    drawn = ww.generate(kinds, 20, window=2, neighbours=3)
    distances = (drawn[:, None] - kinds.reconstruction[:2]).flatten(2).norm(dim=2)
    assert (distances.amin(1) < 1e-4).all()
    assert set(distances.argmin(1).tolist()) == {0, 1}


def test_a_window_is_replaced_in_what_and_where_of_every_layer_and_not_in_the_background() -> None:
    def latents(value: float) -> Latents:
        where = tuple(
            PoolingParams(*torch.full((2, 2, 2, 3, side, side), value)) for side in (16, 8)
        )
        return Latents(
            torch.full((2, 3, 8, 8), value), where, Background(torch.full((2, 1, 20, 20), value))
        )

    inside = (slice(2, 5), slice(6, 8))
    mixed = generation.replace_window(latents(0.0), latents(1.0), inside, torch.Size((8, 8)))
    above, below = torch.zeros(8, 8), torch.zeros(16, 16)
    above[2:5, 6:8], below[4:10, 12:16] = 1, 1
    wanted = [above, below, below, above, above, torch.zeros(20, 20)]
    for tensor, pattern in zip(mixed.tensors(), wanted, strict=True):
        assert torch.equal(tensor, pattern.expand_as(tensor))


def test_windows_cover_the_map() -> None:
    for seed in range(20):
        covered = torch.zeros(7, 5, dtype=torch.bool)
        for window in generation.covering_windows(
            covered.shape, 3, torch.Generator().manual_seed(seed)
        ):
            covered[window] = True
            assert covered[window].numel() <= 9
        assert covered.all()


def test_the_nearest_outside_a_window_ignores_what_is_inside_and_its_own_example() -> None:
    contexts = torch.rand(10, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    inside = (slice(1, 3), slice(0, 2))
    changed = contexts.clone()
    changed[:, :, 1:3, 0:2] = 7
    near = generation.nearest_elsewhere(contexts, changed, inside, torch.arange(10).roll(1), 1)
    assert near[:, 0].tolist() == list(range(10))
    others = generation.nearest_elsewhere(contexts, changed, inside, torch.arange(10), 1)
    assert (others[:, 0] != torch.arange(10)).all()


def test_transfer_takes_features_of_one_and_places_of_the_other(examples: ww.Solution) -> None:
    first, second = part(examples, slice(0, 3)), part(examples, slice(3, 6))
    expected = (
        ww.DeconvNet(SPEC)
        .at(12, 12)
        .decode(Latents(first.latents.p, second.latents.pooling_params))
    )
    torch.testing.assert_close(ww.transfer(first, second), expected)


def test_a_morph_begins_and_ends_at_its_images_and_is_halfway_in_the_middle(
    examples: ww.Solution,
) -> None:
    first, second = part(examples, slice(0, 3)), part(examples, slice(3, 6))
    frames = ww.morph(first, second, 5)
    assert frames.shape == (5, 3, 1, 12, 12)
    torch.testing.assert_close(frames[0], first.reconstruction)
    torch.testing.assert_close(frames[4], second.reconstruction)
    middle = iter(
        [
            (a + b) / 2
            for a, b in zip(first.latents.tensors(), second.latents.tensors(), strict=True)
        ]
    )
    halfway = first.latents.map(lambda _: next(middle))
    torch.testing.assert_close(frames[2], ww.DeconvNet(SPEC).at(12, 12).decode(halfway))


def test_what_does_not_fit_raises(examples: ww.Solution) -> None:
    for function in (ww.transfer, ww.morph):
        with raises(WrongShape, name="features"):
            function(part(examples, slice(0, 2)), part(examples, slice(0, 3)))
    with raises(InvalidImages, given="3 examples", expected="more than neighbours = 5"):
        ww.generate(part(examples, slice(0, 3)), 1)
    with raises(InvalidSetting, given={"count": 0}):
        ww.generate(examples, 0)
    with raises(InvalidSetting, given={"count": 1}):
        ww.morph(examples, examples, 1)
