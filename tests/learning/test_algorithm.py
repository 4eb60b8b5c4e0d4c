"""The outer loops: resets, layers that are passed over, layers below that were trained elsewhere."""

from dataclasses import replace

import torch

import tiny_training as tiny
import whatwhere.inference.filter_map
import whatwhere.learning.algorithm
from whatwhere.inference.engines import REFERENCE
from whatwhere.latents import Latents
from whatwhere.model import Problem
from whatwhere.spec import LearningSpec, Phase


def test_features_are_zero_after_a_reset_epoch(monkeypatch):
    seen = []
    solve = whatwhere.learning.algorithm.solve

    def watch(engine, problem):
        seen.append((problem.phase.layer, problem.latents))
        return solve(engine, problem)

    monkeypatch.setattr(whatwhere.learning.algorithm, "solve", watch)
    tiny.train(tiny.recipe(epochs=3), tiny.images(2))
    first, second, third = (latents for layer, latents in seen if layer == 1)
    assert first == Latents()
    assert not second.p.any(), "reset_at = (1,): after epoch 1 the features are 0"
    assert third.p.any()
    assert second.pooling_params[0].gamma.any(), "the pooling variables stay"


def test_a_layer_without_epochs_is_passed_over():
    recipe = tiny.recipe()
    none = LearningSpec(inference=recipe.learning[0].inference, epochs=0)
    run = tiny.train(replace(recipe, learning=(none, recipe.learning[1])), tiny.images())
    assert [report.layer for report in run.history] == [2, 2]


def upper_layer_alone():
    """Layer 1 of a first training, and the recipe that trains layer 2 on it."""
    recipe = tiny.recipe()
    start = tiny.train(recipe, tiny.images()).model
    return start, replace(recipe, learning=(replace(recipe.learning[0], epochs=0), recipe.learning[1]))


def test_the_first_epoch_infers_the_layers_below_as_their_own_training_did(monkeypatch):
    start, recipe = upper_layer_alone()
    solve, seen = whatwhere.learning.algorithm.solve, []

    def spy(engine, problem):
        seen.append(problem)
        return solve(engine, problem)

    monkeypatch.setattr(whatwhere.learning.algorithm, "solve", spy)
    tiny.train(recipe, tiny.images(), start=start)
    one, two = Phase(layer=1, update_pooling=(1,)), Phase(layer=2, update_pooling=(1, 2))
    assert [problem.phase for problem in seen] == [one, two] * 3 + [two] * 3, "three batches, two epochs"
    v, latents = seen[1].images, seen[1].latents
    alone = REFERENCE.solve(Problem(start, v, one, recipe.learning[0].inference)).latents
    assert len(latents.pooling_params) == 1
    assert torch.equal(latents.pooling_params[0].mu, alone.pooling_params[0].mu)
    assert torch.equal(latents.pooling_params[0].gamma, alone.pooling_params[0].gamma)


def test_the_lower_filters_stay_as_they_were():
    start, recipe = upper_layer_alone()
    run = tiny.train(recipe, tiny.images(), start=start)
    assert torch.equal(run.model.filters[0], start.filters[0])
    assert not torch.equal(run.model.filters[1], start.filters[1])
    assert [report.layer for report in run.history] == [2, 2]
