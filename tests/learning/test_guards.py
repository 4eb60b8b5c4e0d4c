"""Training stops when its numbers are no longer usable, and says why."""

from dataclasses import replace

import pytest

import tiny_training as tiny
import whatwhere.inference.filter_map
import whatwhere.learning.algorithm
from whatwhere.learning import TrainingDiverged
from whatwhere.learning.session import likely_cause
from whatwhere.model import DeconvNet, load
from whatwhere.spec import InferenceSpec, LineSearch


@pytest.fixture(scope="module")
def reference():
    """Training in memory, without a stop."""
    return tiny.train(tiny.recipe(), tiny.images())


def spoil(monkeypatch, call: int, **changes):
    """Make one call of inference return other statistics."""
    solve = whatwhere.learning.algorithm.solve
    calls = iter(range(1, 1000))

    def spoiled(*arguments):
        solution = solve(*arguments)
        if next(calls) != call:
            return solution
        stats = {name: getattr(solution.stats, name) * factor for name, factor in changes.items()}
        return replace(solution, stats=replace(solution.stats, **stats))

    monkeypatch.setattr(whatwhere.learning.algorithm, "solve", spoiled)


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e4])
def test_an_unusable_cost_stops_training_and_keeps_the_checkpoint(factor, reference, tmp_path, monkeypatch):
    spoil(monkeypatch, call=5, reconstruction=factor)  # layer 1, epoch 2, the second of three batches
    with pytest.raises(TrainingDiverged, match=r"layer 1, epoch 2, batch 2 of 3: the cost .* Likely cause: one step"):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    monkeypatch.undo()
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(run.model, reference.model)


def test_the_likely_cause_is_a_setting_that_was_changed():
    model, usual = DeconvNet(tiny.recipe().model), InferenceSpec(step=LineSearch())
    assert "pooling_step = 9 moves" in likely_cause(model, replace(usual, pooling_step=9.0))
    assert "high contrast" in likely_cause(model, usual), "not the default of pooling_step"


def test_sums_that_are_not_finite_do_not_pass_for_a_filter_that_has_converged(monkeypatch):
    batch_sum = whatwhere.inference.filter_map.filter_gradient
    monkeypatch.setattr(whatwhere.inference.filter_map, "filter_gradient", lambda *a: batch_sum(*a).fill_(float("inf")))
    with pytest.raises(TrainingDiverged, match="layer 1, epoch 1: the sums for the filter update are not finite"):
        tiny.train(tiny.recipe(), tiny.images())


def test_filters_that_are_not_finite_raise(monkeypatch, tmp_path):
    def broken(model, k, *_):
        return model.filters[k - 1] * float("nan")

    monkeypatch.setattr(whatwhere.learning.algorithm, "solve_filters", broken)
    with pytest.raises(TrainingDiverged, match="layer 1, epoch 1: the filters of layer 1 are no longer finite"):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    assert all(f.isfinite().all() for f in load(tmp_path / "model.safetensors").filters)
