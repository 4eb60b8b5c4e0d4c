"""Training that goes on from a model whose lower layers were trained elsewhere."""

from dataclasses import replace

import torch

import tiny_training as tiny
import whatwhere.learning.algorithm
from whatwhere.inference.engines import REFERENCE
from whatwhere.latents import Latents
from whatwhere.spec import Phase


def upper_layer_alone():
    """Layer 1 of a first training, and the recipe that trains layer 2 on it."""
    recipe = tiny.recipe()
    start = tiny.train(recipe, tiny.images()).model
    return start, replace(recipe, learning=(replace(recipe.learning[0], epochs=0), recipe.learning[1]))


def test_the_first_epoch_infers_the_layers_below_as_their_own_training_did(monkeypatch):
    start, recipe = upper_layer_alone()
    run_phase, seen = whatwhere.learning.algorithm.run_phase, []

    def spy(model, v, latents, phase, spec, engine):
        seen.append((v, latents, phase, spec))
        return run_phase(model, v, latents, phase, spec, engine)

    monkeypatch.setattr(whatwhere.learning.algorithm, "run_phase", spy)
    tiny.train(recipe, tiny.images(), start=start)
    one, two = Phase(layer=1, update_pooling=(1,)), Phase(layer=2, update_pooling=(1, 2))
    assert [phase for _, _, phase, _ in seen] == [one, two] * 3 + [two] * 3, "three batches, two epochs"
    v, latents, _, _ = seen[1]
    alone = run_phase(start, v, Latents(), one, recipe.learning[0].inference, REFERENCE).latents
    assert len(latents.pooling_params) == 1
    assert torch.equal(latents.pooling_params[0].mu, alone.pooling_params[0].mu)
    assert torch.equal(latents.pooling_params[0].gamma, alone.pooling_params[0].gamma)


def test_the_lower_filters_stay_as_they_came():
    start, recipe = upper_layer_alone()
    run = tiny.train(recipe, tiny.images(), start=start)
    assert torch.equal(run.model.filters[0], start.filters[0])
    assert not torch.equal(run.model.filters[1], start.filters[1])
    assert [report.layer for report in run.history] == [2, 2]
