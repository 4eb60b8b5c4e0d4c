"""The machinery around an algorithm: statistics, stops, and a second algorithm on it."""

from dataclasses import replace

import pytest
import torch

import tiny_training as tiny
import whatwhere.inference.filter_map
import whatwhere.learning.algorithm
import whatwhere.learning.trainer
from whatwhere.inference.engines import REFERENCE
from whatwhere.learning import TrainingStopped
from whatwhere.learning.algorithm import learn
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.reports import TrainingState
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import LayerSpec, ModelSpec


def test_dead_maps_are_counted():
    spec = ModelSpec(layers=(LayerSpec(maps=3, filter_size=2),))
    base = tiny.recipe()
    recipe = replace(base, model=spec, learning=base.learning[:1])
    model = DeconvNet(spec)
    dead = model.filters[0].index_fill(1, torch.tensor([1]), 0.0)  # nothing can be explained by a map without filters
    batches = [slice(0, 2), slice(2, 4), slice(4, 5)]

    def dead_maps(model: DeconvNet) -> int:
        store = LatentStore(3, torch.device("cpu"), None, in_memory=True)
        data = TrainingData(model, tiny.images(), batches, store)
        session = TrainingSession(recipe, data, TrainingState(model, 1, 1), ("reference",))
        with torch.no_grad():
            learn(model, recipe, data, (REFERENCE,), session)
        return session.state.history[0].dead_maps

    assert dead_maps(model.with_filters(1, dead)) == dead_maps(model) + 1


class EveryBatch:
    """An algorithm that updates the filters after every batch and stores no latents, on the same machinery."""

    def __call__(self, model, recipe, data, hooks):
        for layer, learning in enumerate(recipe.learning, start=1):
            for _ in hooks.epochs(layer):
                for batch in hooks.batches():
                    v = data.read(batch).v
                    phase = whatwhere.learning.algorithm.training_phase(layer, learning)
                    solution = REFERENCE.solve(Problem(model, v, phase, learning.inference))
                    f = 0.9 * model.filters[layer - 1] + 0.1 / (1 + batch)
                    model = model.with_filters(layer, model.project(layer, f))
                    hooks.end_batch(model, v, solution)
                hooks.end_epoch(model)
        return model


def test_another_algorithm_stops_and_resumes_on_the_same_machinery(tmp_path, monkeypatch):
    """The model of a checkpoint within an epoch is the one after its last batch."""

    def stream(model, recipe, data, engines, hooks):
        return EveryBatch()(model, recipe, data, hooks)

    monkeypatch.setattr(whatwhere.learning.trainer, "learn", stream)
    model = ModelSpec(layers=(LayerSpec(maps=2, filter_size=2),))
    recipe = replace(tiny.recipe(), model=model, learning=tiny.recipe().learning[:1])
    expected = tiny.train(recipe, tiny.images())
    with pytest.raises(TrainingStopped):
        tiny.train(recipe, tiny.images(), tmp_path, stop=tiny.StopAfter(2))
    run = tiny.train(recipe, tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(run.model, expected.model)
    assert [report.cost for report in run.history] == [report.cost for report in expected.history]
