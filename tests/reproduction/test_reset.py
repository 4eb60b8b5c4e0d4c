"""The study of the reset: what its branches do to latents, and how unused maps come back."""

from dataclasses import replace

import pytest
import torch

from reproduction.studies.reset import TOP, Training, forget, keep, patch_filter, zero_features
from whatwhere import DeconvNet, data, override
from whatwhere.ops.convolution import convolve_down
from whatwhere.spec import Recipe

SMALL = {
    "batch_size": 10,
    "model": {"layers": {"1": {"maps": 3}, "2": {"maps": 4, "fan_in": 3}}},
    "learning": {"each": {"inference": {"steps": 3}}},
}


@pytest.fixture(scope="module")
def training() -> Training:
    recipe = override(Recipe.paper(), SMALL)
    below = DeconvNet(replace(recipe.model, layers=recipe.model.layers[:1]))
    begun = Training.begin(recipe, below, data.load("digits").subset(range(20)), "cpu")
    with torch.no_grad():
        begun.epoch(recipe.learning[TOP - 1].inference)
    return begun


def test_the_filter_of_a_patch_draws_the_patch() -> None:
    signal = torch.rand(2, 9, 8)
    f = patch_filter(signal, 3, 1, (5, 5))
    z = torch.zeros(1, 1, 13, 12)
    z[0, 0, 7, 5] = 1
    drawn = convolve_down(z, f[:, None])[0]
    assert torch.equal(drawn[:, 3:8, 1:6], signal[:, 3:8, 1:6])
    drawn[:, 3:8, 1:6] = 0
    assert not drawn.any()


def test_the_branches_keep_or_forget(training: Training) -> None:
    latents = training.latents[0]
    assert keep(latents) is latents
    reset = zero_features(latents)
    assert not reset.features.any()
    assert reset.pooling_params is latents.pooling_params
    assert forget(latents).pooling_params == ()


def test_an_unused_map_gets_another_filter_and_is_used_again(training: Training) -> None:
    training = training.branch()
    zero = training.model.filters[TOP - 1].clone()
    zero[:, 2] = 0
    training.model = training.model.with_filters(TOP, zero)
    training.latents = [zero_features(latents) for latents in training.latents]
    inference = training.recipe.learning[TOP - 1].inference
    with torch.no_grad():
        used = training.epoch(inference, update=False)
        assert (used == 0).tolist() == [False, False, True, False]
        before = training.model.filters[TOP - 1]
        training.restart(used == 0)
        after = training.model.filters[TOP - 1]
        assert torch.equal(before[:, [0, 1, 3]], after[:, [0, 1, 3]])
        assert after[:, 2].square().sum() > 0
        assert training.epoch(inference)[2] > 0
    assert training.history[-2]["unused"] == 1
    assert training.history[-1]["unused"] == 0
