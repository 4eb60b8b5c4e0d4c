"""The study of the reset: what its branches do to latents, and how unused maps come back."""

from dataclasses import replace

import pytest
import torch

from reproduction.studies.reset import (
    TOP,
    Training,
    forget,
    insert,
    keep,
    new_filters,
    patch_filter,
    split,
    zero_features,
)
from whatwhere import DeconvNet, data, override
from whatwhere.learning.algorithm import training_phase
from whatwhere.model import Problem
from whatwhere.ops.convolution import convolve_down
from whatwhere.spec import Recipe

SMALL = {
    "batch_size": 10,
    "model": {"layers": {"1": {"maps": 3}, "2": {"maps": 4, "fan_in": 2}}},
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
        new_filters(training, torch.tensor([2]), used)
        after = training.model.filters[TOP - 1]
        assert torch.equal(before[:, [0, 1, 3]], after[:, [0, 1, 3]])
        assert after[:, 2].square().sum() > 0
        assert training.epoch(inference)[2] > 0
    assert training.history[-2]["unused"] == 1
    assert training.history[-1]["unused"] == 0


def cost(training: Training) -> torch.Tensor:
    """The cost of each image of the first batch, as its latents are."""
    learning = training.recipe.learning[TOP - 1]
    problem = Problem(
        training.model,
        training.images[0],
        training_phase(TOP, learning),
        learning.inference,
        training.latents[0],
    )
    return problem.objective(training.latents[0]).cost


@torch.no_grad()
def test_a_split_changes_no_cost_and_shares_the_images_of_a_map(training: Training) -> None:
    training = training.branch()
    lost = training.latents[0].features.clone()
    lost[:, 2] = 0
    training.latents = [replace(each, p=lost) for each in training.latents]
    used = (lost != 0).flatten(2).any(2).sum(0)
    before = cost(training)
    split(training, torch.tensor([2]), used)
    torch.testing.assert_close(cost(training), before)
    filters = training.model.filters[TOP - 1]
    source = next(k for k in (0, 1, 3) if torch.equal(filters[:, 2], filters[:, k]))
    assert used[source] == used.max()
    shared = (training.latents[0].features != 0).flatten(2).any(2)
    assert not (shared[:, 2] & shared[:, source]).any()
    assert int(shared[:, 2].sum()) >= int(shared[:, source].sum()) > 0
    assert int(shared[:, [2, source]].sum()) == int(used[source])


@torch.no_grad()
def test_an_inserted_map_lowers_the_cost(training: Training) -> None:
    training = training.branch()
    training.latents = [zero_features(latents) for latents in training.latents]
    before = cost(training)
    insert(training, torch.tensor([2]), torch.zeros(4))
    p = training.latents[0].features
    assert (p[:, [0, 1, 3]] == 0).all()
    inserted = p[:, 2].flatten(1).any(1)
    assert inserted.any()
    assert (cost(training)[inserted] < before[inserted]).all()
    assert torch.equal(cost(training)[~inserted], before[~inserted])
