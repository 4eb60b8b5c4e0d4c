"""The machinery around an algorithm: statistics, stops, and a second algorithm on it."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import tiny_training as tiny
import whatwhere.learning.algorithm
import whatwhere.learning.reports
import whatwhere.learning.trainer
from raising import Containing, raises
from whatwhere.engines import ENGINES, REFERENCE
from whatwhere.engines.compiled import COMPILED
from whatwhere.learning import (
    BatchReport,
    TrainingCallbacks,
    TrainingDiverged,
    TrainingStopped,
    train,
)
from whatwhere.learning.algorithm import learn
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.reports import EpochReport, TrainingProgress, TrainingState, per_image
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet, Problem, load
from whatwhere.spec import LayerSpec, ModelSpec, Recipe
from whatwhere.spec.toml import override, read_recipe


def test_dead_maps_are_counted():
    spec = ModelSpec(layers=(LayerSpec(maps=3, filter_size=2),))
    base = tiny.recipe()
    recipe = replace(base, model=spec, learning=base.learning[:1])
    model = DeconvNet(spec)
    # nothing can be explained by a map without filters
    dead = model.filters[0].index_fill(1, torch.tensor([1]), 0.0)
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
    """An algorithm that updates the filters after every batch and stores no latents, on the same
    machinery."""

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


# Training stops when its numbers are no longer usable, and says why -------------------------------


@pytest.fixture(scope="module")
def reference():
    """Training in memory, without a stop."""
    return tiny.train(tiny.recipe(), tiny.images())


def spoil(monkeypatch, call: int, **changes):
    """Make one call of inference return other statistics."""
    calls = iter(range(1, 1000))

    def spoiled(problem, solution):
        if next(calls) != call:
            return None
        stats = {name: getattr(solution.stats, name) * factor for name, factor in changes.items()}
        return replace(solution, stats=replace(solution.stats, **stats))

    monkeypatch.setitem(ENGINES, "reference", tiny.WatchedEngine(spoiled))


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e4])
def test_an_unusable_cost_stops_training_and_keeps_the_checkpoint(
    factor, reference, tmp_path, monkeypatch
):
    # layer 1, epoch 2, the second of three batches
    spoil(monkeypatch, call=5, reconstruction=factor)
    problem = Containing("the cost of batch 2 of 3 is ")
    with raises(TrainingDiverged, layer=1, epoch=2, problem=problem):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    monkeypatch.undo()
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(run.model, reference.model)


def test_sums_that_are_not_finite_do_not_pass_for_a_filter_that_has_converged(monkeypatch):
    def infinite(linear_map):
        adjoint = linear_map.adjoint
        linear_map.adjoint = lambda e: adjoint(e).fill_(float("inf"))
        return linear_map

    monkeypatch.setitem(ENGINES, "reference", tiny.WatchedEngine(filter_map=infinite))
    problem = Containing("the sums for the filter update have NaN")
    with raises(TrainingDiverged, layer=1, epoch=1, problem=problem):
        tiny.train(tiny.recipe(), tiny.images())


def test_filters_that_are_not_finite_raise(monkeypatch, tmp_path):
    def broken(model, k, *_):
        return model.filters[k - 1] * float("nan")

    monkeypatch.setattr(whatwhere.learning.algorithm, "solve_filters", broken)
    problem = Containing("the updated filters have NaN")
    with raises(TrainingDiverged, layer=1, epoch=1, problem=problem):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    assert all(f.isfinite().all() for f in load(tmp_path / "model.safetensors").filters)


# How training proceeds, as a person sees it: the live display, plain lines, the estimate of the tim


def batch_report(batch: int, epoch: int = 1) -> BatchReport:
    return BatchReport(
        1, epoch, 2, batch, 2, images=10, steps=5, reconstruction=1.0, penalty=0.5, nonzeros=3.0
    )


def shown(progress: TrainingProgress) -> str:
    """The live display as text."""
    console = Console(file=io.StringIO(), width=200)
    console.print(progress.display.get_renderable())
    return console.file.getvalue()


def test_the_live_display_follows_training():
    progress = TrainingProgress(tiny.recipe(), TrainingCallbacks())
    assert "starting" in shown(progress)
    progress.callbacks().on_batch(batch_report(1))
    assert "layer 1  epoch 1/2, batch 1/2" in shown(progress)
    assert "cost 1.5 = 1 + 0.5" in shown(progress)


def test_the_time_left_is_estimated_from_the_steps_of_all_layers(monkeypatch):
    now = 100.0
    # two layers of two epochs: 4 × 5
    progress = TrainingProgress(tiny.recipe(steps=5), TrainingCallbacks())
    monkeypatch.setattr(progress.display, "get_time", lambda: now)
    progress.display.start_task(progress.task)
    progress.callbacks().on_batch(batch_report(1))
    now += 2.0
    progress.callbacks().on_batch(batch_report(2))
    task = progress.display.tasks[progress.task]
    assert task.time_remaining == (20 - 5) / (2.5 / 2.0)


def epoch_report(layer: int, epoch: int, seconds: float) -> EpochReport:
    numbers = {"reconstruction": 1.0, "penalty": 0.5, "nonzeros": 3.0, "images": 10, "steps": 5}
    return EpochReport(layer=layer, epoch=epoch, seconds=seconds, engine="cpu", **numbers)


def test_epochs_say_how_long_the_others_take(capsys):
    recipe = tiny.recipe(steps=5)  # two layers of two epochs
    on_epoch = TrainingProgress(recipe, TrainingCallbacks()).callbacks().on_epoch
    for layer, epoch, seconds in ((1, 1, 20.0), (1, 2, 10.0), (2, 1, 200.0), (2, 2, 200.0)):
        on_epoch(epoch_report(layer, epoch, seconds))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("layer ")]
    assert lines[0].endswith("20.0 s  at least 60 s left")
    assert lines[1].endswith("10.0 s  at least 20 s left")
    assert lines[2].endswith("200.0 s  about 3 min left")
    assert lines[3].endswith("200.0 s"), "training has ended"


def test_an_epoch_that_compiled_says_so(capsys, monkeypatch):
    monkeypatch.setattr(COMPILED, "functions", COMPILED.functions)
    on_epoch = TrainingProgress(tiny.recipe(), TrainingCallbacks()).callbacks().on_epoch
    COMPILED.functions += 1
    on_epoch(epoch_report(1, 1, 118.6))
    on_epoch(epoch_report(1, 2, 16.3))
    first, second = capsys.readouterr().err.splitlines()[1:]
    assert first.endswith("118.6 s (with compiling)")
    assert second.endswith("16.3 s  at least 33 s left")


def test_recordings_are_reported_per_window(capsys):
    base = tiny.recipe()
    recipe = replace(base, model=ModelSpec.signals(2, 8), learning=base.learning[:1])
    TrainingProgress(recipe, TrainingCallbacks()).callbacks().on_epoch(epoch_report(1, 1, 2.0))
    printed = capsys.readouterr().err
    assert "costs and non-zeros per window" in printed
    assert "25 window-iterations/s" in printed
    assert "image" not in printed


def test_a_reset_after_the_last_epoch_is_reported(capsys):
    recipe = override(Recipe.paper(), {"learning": {"each": {"epochs": 12}}})
    TrainingProgress(recipe, TrainingCallbacks())
    assert capsys.readouterr().err == (
        "The reset of the features after epoch 25 never happens: layers 1 and 2 have 12 epochs."
        " Set learning.each.update.reset_at to earlier epochs, or to [].\n"
    )
    at_the_end = {"epochs": 25, "update": {"reset_at": [25]}}  # no epoch begins after it
    recipe = override(Recipe.paper(), {"learning": {"2": at_the_end}})
    TrainingProgress(recipe, TrainingCallbacks())
    assert ": layer 2 has 25 epochs. " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["paper", "photographs", "signals", "demo"])
def test_recipes_that_ship_have_no_missed_reset(name, capsys):
    TrainingProgress(read_recipe(name), TrainingCallbacks())
    assert capsys.readouterr().err == ""


def test_a_resumed_epoch_begins_at_its_batch(tmp_path):
    calls = iter([False, True])
    with pytest.raises(TrainingStopped):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path, stop=lambda: next(calls))
    batches = []
    tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True, on_batch=batches.append)
    assert (batches[0].layer, batches[0].epoch, batches[0].batch) == (1, 1, 3)


def test_train_shows_progress_in_a_script(capsys):
    train(tiny.images(), tiny.recipe(), progress=True, options=tiny.OPTIONS)
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("layer ") for line in lines) == 4
    assert "epoch 2/2" in lines[-1]
    train(tiny.images(), tiny.recipe(), options=tiny.OPTIONS)
    assert capsys.readouterr().err == ""


def test_sums_are_reported_per_image():
    expected = {"reconstruction": 4.0, "penalty": 2.0, "nonzeros": 10.0, "images": 2}
    assert per_image(torch.tensor([8.0, 4.0, 20.0, 2.0, 99.0])) == expected
