"""Training: the same bits in every tier and after every stop, and refusals that say what to do."""

import json
import time
from dataclasses import replace

import pytest
import torch

import tiny_training as tiny
import whatwhere.distributed
import whatwhere.inference.filter_map
import whatwhere.learning.algorithm
from whatwhere.errors import EngineError, ImageError, RunError, SpecError
from whatwhere.inference.engines import REFERENCE
from whatwhere.latents import Latents
from whatwhere.learning import EpochReport, TrainingDiverged, TrainingStopped
from whatwhere.learning.algorithm import learn
from whatwhere.learning.checkpointing import CheckpointSchedule
from whatwhere.learning.guards import likely_cause
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.state import TrainingState
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet, load
from whatwhere.spec import InferenceSpec, LayerSpec, LearningSpec, ModelSpec
from whatwhere.storage import LatentStore


@pytest.fixture(scope="module")
def reference():
    """Training in memory, without a stop."""
    return tiny.train(tiny.recipe(), tiny.images())


@pytest.mark.parametrize("store", ["auto", "device", "ram", "file"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_every_tier_gives_the_same_bits(store, in_folder, reference, tmp_path):
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path / "run" if in_folder else None, store=store)
    assert tiny.same_filters(run.model, reference.model)
    assert [r.cost for r in run.history] == [r.cost for r in reference.history]


@pytest.mark.parametrize(("engine", "message"), [("warp", "'warp' was given"), ("triton", "does not support")])
def test_an_engine_that_cannot_serve_is_refused_before_the_run_begins(engine, message, tmp_path):
    if engine == "triton" and torch.cuda.is_available():
        pytest.skip("with a GPU it can serve")
    with pytest.raises(EngineError, match=message):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path / "run", engine=engine)
    assert not (tmp_path / "run" / "recipe.toml").exists()
    tiny.train(tiny.recipe(), tiny.images(), tmp_path / "run")


@pytest.mark.parametrize("store", ["ram", "file"])
@pytest.mark.parametrize("every", [None, 0, 1, 2, 3])
def test_how_often_checkpoints_are_written_changes_nothing(store, every, reference, tmp_path):
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path, store=store, checkpoint_every=every)
    assert tiny.same_filters(run.model, reference.model)


def test_checkpoints_are_due_every_epoch_or_as_often_as_a_tenth_of_the_time_allows():
    assert [CheckpointSchedule(2).due(epoch, 10.0) for epoch in (1, 2, 3, 4)] == [False, True, False, True]
    assert not CheckpointSchedule(0).due(1, 10.0)
    for cost, expected in ((1.0, [True] * 6), (2.5, [True, False, False, True, False, False])):
        now = 0.0
        schedule = CheckpointSchedule(None, lambda: now)  # noqa: B023  (called within this round)
        due = []
        for epoch in range(1, 7):
            due.append(schedule.due(epoch, 10.0))
            now += 10.0  # an epoch
            if due[-1]:
                with schedule.measured():
                    now += cost
        assert due == expected, f"checkpoints of {cost} s, epochs of 10 s"


def test_a_run_is_a_folder_that_holds_the_model_and_the_history(reference, tmp_path):
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path / "runs" / "a")
    assert run.folder == tmp_path / "runs" / "a"
    found = sorted(path.relative_to(run.folder).as_posix() for path in run.folder.rglob("*"))
    assert found == [
        "checkpoint",
        "checkpoint/state.safetensors",
        "history.jsonl",
        "model.safetensors",
        "recipe.toml",
    ]
    assert tiny.same_filters(load(run.folder / "model.safetensors"), reference.model)
    lines = [json.loads(line) for line in (run.folder / "history.jsonl").read_text().splitlines()]
    assert [(line["layer"], line["epoch"]) for line in lines] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [line["cost"] for line in lines] == [report.cost for report in reference.history]
    assert {"reconstruction", "penalty", "nonzeros", "dead_maps", "seconds", "engine"} <= lines[0].keys()


def test_the_history_is_what_the_last_step_of_inference_measured(monkeypatch):
    ends = []
    run_phase = whatwhere.learning.algorithm.run_phase
    monkeypatch.setattr(
        whatwhere.learning.algorithm, "run_phase", lambda *a: (ends.append(solution := run_phase(*a)), solution)[1]
    )
    run = tiny.train(replace(tiny.recipe(epochs=1)), tiny.images())
    first = ends[:3]  # three batches of layer 1
    assert run.history[0].reconstruction == pytest.approx(
        sum(float(s.stats.reconstruction[-1].sum()) for s in first) / 5
    )
    assert run.history[0].nonzeros == sum(int((s.features != 0).sum()) for s in first) / 5
    assert run.history[0].images == 5


class StopAfter:
    """Asks to stop when it has been asked this often."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


@pytest.mark.parametrize("store", ["ram", "file"])
@pytest.mark.parametrize("every", [0, 1])
def test_stopped_after_any_batch_and_resumed_it_ends_with_the_same_bits(store, every, reference, tmp_path):
    options = {"store": store, "checkpoint_every": every}
    stops = 0
    resume = False
    while True:
        try:
            run = tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=resume, stop=StopAfter(1), **options)
            break
        except TrainingStopped:
            stops, resume = stops + 1, True
    assert stops == 15, "after each of three batches and at the end of each of four epochs, but for the very last"
    assert tiny.same_filters(run.model, reference.model)
    assert [r.cost for r in run.history] == [r.cost for r in reference.history]
    assert {r.engine for r in run.history} == {"reference"}
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 4


def test_stopped_without_a_folder_says_that_nothing_was_kept():
    with pytest.raises(TrainingStopped, match="nothing was saved"):
        tiny.train(tiny.recipe(), tiny.images(), stop=lambda: True)


def test_a_finished_run_resumes_to_what_it_is(reference, tmp_path):
    tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    again = tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(again.model, reference.model)
    assert len(again.history) == 4


def test_features_are_zero_after_a_reset_epoch(monkeypatch):
    seen = []
    run_phase = whatwhere.learning.algorithm.run_phase

    def watch(model, images, latents, phase, *rest):
        seen.append((phase.layer, latents))
        return run_phase(model, images, latents, phase, *rest)

    monkeypatch.setattr(whatwhere.learning.algorithm, "run_phase", watch)
    tiny.train(tiny.recipe(epochs=3), tiny.images(2))
    first, second, third = (latents for layer, latents in seen if layer == 1)
    assert first == Latents()
    assert not second.p.any(), "reset_at = (1,): after epoch 1 the features are 0"
    assert third.p.any()
    assert second.pooling_params[0].gamma.any(), "the pooling variables stay"


def test_between_processes_only_filter_sums_and_a_few_numbers_would_move(monkeypatch):
    moved = []
    monkeypatch.setattr(
        whatwhere.distributed, "all_reduce_sum", lambda tensor: (moved.append(tensor.nbytes), tensor)[1]
    )
    tiny.train(tiny.recipe(epochs=1), tiny.images())
    rounds, measured, flags, cg_steps = 3, 7 * 8, 4, 2
    layer1, layer2 = 1 * 2 * 2 * 2 * 8, 2 * 3 * 2 * 2 * 8  # float64 sums of the filters
    maps1, maps2 = 2 * 8, 3 * 8
    unknown_pixels = 4  # one flag at the start
    for_each_layer = rounds * measured + flags
    assert sum(moved) == (1 + cg_steps) * (layer1 + layer2) + maps1 + maps2 + 2 * for_each_layer + unknown_pixels


def test_dead_maps_are_counted():
    spec = ModelSpec(layers=(LayerSpec(maps=3, filter_size=2),))
    base = tiny.recipe()
    recipe = replace(base, model=spec, learning=base.learning[:1])
    model = DeconvNet(spec)
    dead = model.filters[0].index_fill(1, torch.tensor([1]), 0.0)  # nothing can be explained by a map without filters
    batches = [slice(0, 2), slice(2, 4), slice(4, 5)]

    def dead_maps(model: DeconvNet) -> int:
        store = LatentStore("ram", 3, device=torch.device("cpu"))
        data = TrainingData(tiny.images(), batches, store)
        session = TrainingSession(recipe, data, TrainingState(model, 1, 1), ("reference",))
        with torch.no_grad():
            learn(model, recipe, data, (REFERENCE,), session)
        return session.state.history[0].dead_maps

    assert dead_maps(model.with_filters(1, dead)) == dead_maps(model) + 1


def test_latents_of_half_size_change_the_cost_a_little(reference):
    exact = [report.cost for report in reference.history]
    for dtype, tolerance in (("float16", 0.01), ("bfloat16", 0.05)):
        run = tiny.train(tiny.recipe(), tiny.images(), latent_dtype=dtype)
        costs = [report.cost for report in run.history]
        assert costs != exact
        assert costs == pytest.approx(exact, rel=tolerance)


def test_what_was_chosen_is_told():
    told = []
    tiny.train(tiny.recipe(epochs=1), tiny.images(), store="ram", on_start=told.append)
    assert told == ["latents in the tier 'ram': asked for"]


def test_the_history_tells_how_long_the_filters_took(reference, monkeypatch):
    update = whatwhere.learning.algorithm.update_filters
    monkeypatch.setattr(whatwhere.learning.algorithm, "update_filters", lambda *a: (time.sleep(0.2), update(*a))[1])
    slow = tiny.train(tiny.recipe(), tiny.images())
    assert all(0 < epoch.filter_seconds < epoch.seconds for epoch in reference.history)
    assert all(0.2 < epoch.filter_seconds < epoch.seconds for epoch in slow.history)
    old = {name: value for name, value in slow.history[0].table().items() if name != "filter_seconds"}
    assert EpochReport.of(old).filter_seconds == 0, "histories from before it was told can be read"


# Guards ------------------------------------------------------------------------------------------------------


def spoil(monkeypatch, call: int, **changes):
    """Make one call of inference return other statistics."""
    run_phase = whatwhere.learning.algorithm.run_phase
    calls = iter(range(1, 1000))

    def spoiled(*arguments):
        solution = run_phase(*arguments)
        if next(calls) != call:
            return solution
        stats = {name: getattr(solution.stats, name) * factor for name, factor in changes.items()}
        return replace(solution, stats=replace(solution.stats, **stats))

    monkeypatch.setattr(whatwhere.learning.algorithm, "run_phase", spoiled)


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e4])
def test_a_cost_that_is_not_sensible_stops_training_and_keeps_the_checkpoint(factor, reference, tmp_path, monkeypatch):
    spoil(monkeypatch, call=5, reconstruction=factor)  # layer 1, epoch 2, the second of three batches
    with pytest.raises(TrainingDiverged, match=r"layer 1, epoch 2, batch 2 of 3: the cost .* Likely cause: one step"):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    monkeypatch.undo()
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(run.model, reference.model)


def test_the_likely_cause_is_a_setting_that_was_changed():
    model, usual = DeconvNet(tiny.recipe().model), InferenceSpec(step_size="image")
    assert "pooling_step = 9 moves" in likely_cause(model, replace(usual, pooling_step=9.0))
    assert "high contrast" in likely_cause(model, usual), "not the default of pooling_step"


def test_features_beyond_float16_are_named_as_the_cause():
    with pytest.raises(TrainingDiverged, match=r"epoch 1, batch 1 of 3: \d+ features are beyond what float16 holds"):
        tiny.train(tiny.recipe(), tiny.images() * 1e6, latent_dtype="float16")


def test_sums_that_are_not_finite_do_not_pass_for_a_filter_that_has_converged(monkeypatch):
    batch_sum = whatwhere.inference.filter_map.filter_gradient
    monkeypatch.setattr(whatwhere.inference.filter_map, "filter_gradient", lambda *a: batch_sum(*a).fill_(float("inf")))
    with pytest.raises(TrainingDiverged, match="layer 1, epoch 1: the sums for the filter update are not finite"):
        tiny.train(tiny.recipe(), tiny.images())


def test_filters_that_are_not_finite_are_refused(monkeypatch, tmp_path):
    def broken(model, k, *_):
        return model.with_filters(k, model.filters[k - 1] * float("nan"))

    monkeypatch.setattr(whatwhere.learning.algorithm, "update_filters", broken)
    with pytest.raises(TrainingDiverged, match="layer 1, epoch 1: the filters of layer 1 are no longer finite"):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    assert all(f.isfinite().all() for f in load(tmp_path / "model.safetensors").filters)


# Refusals ----------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path):
    """A run that was stopped in its second epoch."""
    folder = tmp_path / "run"
    with pytest.raises(TrainingStopped, match=f"epoch 2, 2 of 3 batches done; continue with: whatwhere .* {folder}"):
        tiny.train(tiny.recipe(), tiny.images(), folder, stop=StopAfter(6))
    return folder


def resumes(folder, reference) -> bool:
    run = tiny.train(tiny.recipe(), tiny.images(), folder, resume=True)
    return tiny.same_filters(run.model, reference.model)


def test_a_changed_recipe_is_refused_by_the_names_of_its_changes(stopped, reference):
    with pytest.raises(RunError, match=r"other recipe: learning.1.inference.lam was 2.0 and is now 3.0, learning.2"):
        tiny.train(tiny.recipe(lam=3.0), tiny.images(), stopped, resume=True)
    assert resumes(stopped, reference)


@pytest.mark.parametrize("other", [tiny.images(seed=1), tiny.images(4), tiny.images().double()])
def test_other_images_are_refused(other, stopped, reference):
    with pytest.raises(RunError, match="other images: they are not those"):
        tiny.train(tiny.recipe(), other, stopped, resume=True)
    assert resumes(stopped, reference)


def test_another_latent_dtype_is_refused(stopped, reference):
    with pytest.raises(RunError, match="it was float32 and is now float16"):
        tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True, latent_dtype="float16")
    assert resumes(stopped, reference)


def test_a_folder_that_holds_a_run_is_not_overwritten(stopped, reference):
    with pytest.raises(RunError, match="holds a run already; continue it"):
        tiny.train(tiny.recipe(), tiny.images(), stopped)
    assert resumes(stopped, reference)


def test_two_processes_cannot_train_in_one_folder(stopped):
    messages = []

    def intrude(report):
        with pytest.raises(RunError) as unsupported_reason:
            tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True)
        messages.append(str(unsupported_reason.value))

    tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True, on_epoch=intrude)
    assert "another process is training in this folder" in messages[0]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "checkpoint/state.safetensors").unlink(), "there is no checkpoint here"),
        (lambda folder: (folder / "checkpoint/state.safetensors").write_bytes(b"x" * 100), "is damaged"),
        (lambda folder: next(folder.glob("checkpoint/latents/*/p.npy")).unlink(), "cannot be read"),
        (lambda folder: next(folder.glob("checkpoint/latents/layer1-0/p.npy")).write_bytes(b""), "cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_the_model_stays_usable(harm, message, stopped):
    harm(stopped)
    with pytest.raises(RunError, match=message) as unsupported_reason:
        tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True)
    assert "model.safetensors" in str(unsupported_reason.value)
    assert load(stopped / "model.safetensors").spec == tiny.recipe().model


def test_there_is_nothing_to_resume_in_an_empty_folder(tmp_path):
    with pytest.raises(RunError, match=r"no checkpoint here to continue from; .* train again"):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True)


def test_bad_calls_are_refused(tmp_path):
    with pytest.raises(SpecError, match="resume=True was given without a folder"):
        tiny.train(tiny.recipe(), tiny.images(), resume=True)
    with pytest.raises(SpecError, match="checkpoint_every = -1"):
        tiny.train(tiny.recipe(), tiny.images(), checkpoint_every=-1)
    with pytest.raises(ImageError, match="empty set"):
        tiny.train(tiny.recipe(), tiny.images(0))
    with pytest.raises(ImageError, match="NaN or Inf"):
        tiny.train(tiny.recipe(), tiny.images() * float("inf"), tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_a_layer_without_epochs_is_passed_over():
    recipe = tiny.recipe()
    none = LearningSpec(inference=recipe.learning[0].inference, epochs=0)
    run = tiny.train(replace(recipe, learning=(none, recipe.learning[1])), tiny.images())
    assert [report.layer for report in run.history] == [2, 2]
