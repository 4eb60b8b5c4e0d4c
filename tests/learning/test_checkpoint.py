"""Checkpoints: complete or not there; what was not written raises an error."""

from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

import tiny_training as tiny
from raising import Containing, raises
from whatwhere.errors import NoSuchRun, RunError, UnusableRunFile
from whatwhere.learning import TrainingStopped, session
from whatwhere.learning.checkpoint import Checkpoint, FixedEpochs, training_changes
from whatwhere.learning.reports import TrainingState
from whatwhere.learning.run_folder import RunDiffers
from whatwhere.spec import DescriptorSpec, InferenceSpec, Phase, Recipe
from whatwhere.spec.toml import read_recipe, to_toml

CHECKPOINT = Checkpoint(
    layer=2,
    epoch=3,
    batch=1,
    recipe="seed = 1",
    images="abc",
    notes={"source": "digits"},
    history=[{"layer": 1, "cost": 0.1 + 0.2}],
    tensors={"layer1.filters": torch.randn(2, 3), "tally.active": torch.tensor([True, False])},
)


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    CHECKPOINT.save(tmp_path)
    read = Checkpoint.load(tmp_path)
    assert (read.layer, read.epoch, read.batch, read.history) == (2, 3, 1, CHECKPOINT.history)
    assert (read.recipe, read.images, read.notes) == ("seed = 1", "abc", {"source": "digits"})
    assert all(
        torch.equal(read.tensors[name], tensor) for name, tensor in CHECKPOINT.tensors.items()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_checkpoint_cut_short_anywhere_or_with_any_byte_changed_raises(tmp_path):
    CHECKPOINT.save(tmp_path)
    path = tmp_path / "state.safetensors"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place])
        with raises(UnusableRunFile, path=path):
            Checkpoint.load(tmp_path)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            read = Checkpoint.load(tmp_path)
        except RunError:
            continue
        # a byte of the header that says nothing, such as a blank, may change
        assert read.recipe == CHECKPOINT.recipe
        assert all(
            torch.equal(read.tensors[name], tensor) for name, tensor in CHECKPOINT.tensors.items()
        )


VALUES = torch.arange(6.0, dtype=torch.float64).view(2, 3)


@pytest.mark.parametrize(
    "changed",
    [VALUES.view(3, 2), VALUES.view(torch.int64), VALUES.view(6)],
)
def test_the_checksum_covers_dtype_and_shape(changed, tmp_path, monkeypatch):
    """The same bytes as another type, or in another shape."""
    checkpoint = replace(CHECKPOINT, tensors={"f": VALUES})
    checkpoint.save(tmp_path)
    checksum = safe_open(tmp_path / "state.safetensors", framework="pt").metadata()["sha256"]
    monkeypatch.setattr("whatwhere.model.files.checksum", lambda *_: checksum)
    replace(checkpoint, tensors={"f": changed}).save(tmp_path)
    monkeypatch.undo()
    with raises(
        UnusableRunFile, kind="checkpoint", reason="its checksum does not match its content"
    ):
        Checkpoint.load(tmp_path)


def test_a_missing_checkpoint_says_so(tmp_path):
    with raises(NoSuchRun, path=str(tmp_path / "state.safetensors")):
        Checkpoint.load(tmp_path)


def test_a_checkpoint_of_another_version_raises(tmp_path, monkeypatch):
    monkeypatch.setattr("whatwhere.learning.checkpoint.FORMAT", "whatwhere checkpoint 9")
    CHECKPOINT.save(tmp_path)
    monkeypatch.undo()
    with raises(UnusableRunFile, kind="checkpoint") as raised:
        Checkpoint.load(tmp_path)
    assert raised.value.__cause__.given == "whatwhere checkpoint 9"


@pytest.mark.parametrize(
    "content", [{"layer": 0}, {"layer": "1"}, {"batch": None}, {"recipe": 3}, {"notes": []}]
)
def test_content_of_another_kind_raises(content, tmp_path):
    """With a checksum that is right: somebody wrote it so."""
    checkpoint = replace(CHECKPOINT)
    for name, value in content.items():
        object.__setattr__(checkpoint, name, value)
    checkpoint.save(tmp_path)
    wrong = Containing(f"got {next(iter(content))} = ")
    with raises(UnusableRunFile, kind="checkpoint", reason=wrong):
        Checkpoint.load(tmp_path)


# When checkpoints are written, and that it does not change the outcome ----------------------------


@pytest.fixture(scope="module")
def reference():
    """Training in memory, without a stop."""
    return tiny.train(tiny.recipe(), tiny.images())


@pytest.mark.parametrize("store", ["memory", "file"])
@pytest.mark.parametrize("every", [None, 0, 1, 2, 3])
def test_how_often_checkpoints_are_written_changes_nothing(store, every, reference, tmp_path):
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path, store=store, checkpoint_every=every)
    assert tiny.same_filters(run.model, reference.model)


def test_checkpoints_are_due_every_epoch_or_as_often_as_a_tenth_of_the_time_allows(monkeypatch):
    now = 0.0
    monkeypatch.setattr(session.time, "monotonic", lambda: now)

    def due(cost, every=None):
        """Which of six epochs of 10 s end with a checkpoint of so many seconds."""
        nonlocal now

        class Folder:
            def save(self, state):
                nonlocal now
                now += cost

        state = TrainingState(None, 1, 1)
        made = session.TrainingSession(
            tiny.recipe(), None, state, (), folder=Folder(), checkpoint_every=every
        )
        made._saved, epochs = now, []
        for epoch in range(1, 7):
            now += 10.0
            made.state = replace(state, history=(None,) * epoch)
            epochs.append(made._checkpoint_due())
            if epochs[-1]:
                made._checkpoint()
        return epochs

    assert due(1.0) == [True] * 6
    assert due(2.5) == [True, False, False, True, False, False]
    assert due(1.0, every=2) == [False, True] * 3
    assert due(1.0, every=0) == [False] * 6


# What may change when a run is resumed: settings of test time, and epochs that are still to come --


def with_epochs(*epochs: int) -> Recipe:
    recipe = tiny.recipe()
    learning = tuple(
        replace(spec, epochs=n) for spec, n in zip(recipe.learning, epochs, strict=True)
    )
    return replace(recipe, learning=learning)


def test_a_finished_run_can_be_given_more_epochs(tmp_path):
    tiny.train(with_epochs(2, 1), tiny.images(), tmp_path)
    run = tiny.train(with_epochs(2, 3), tiny.images(), tmp_path, resume=True)
    assert [(report.layer, report.epoch) for report in run.history] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (2, 3),
    ]
    assert read_recipe(tmp_path / "recipe.toml").learning[1].epochs == 3
    again = tiny.train(with_epochs(2, 3), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(again.model, run.model)


def test_a_stopped_run_given_more_epochs_ends_as_if_it_had_them_from_the_start(tmp_path):
    calls = iter([False] * 5 + [True])
    with raises(TrainingStopped, epoch=2, batches=2, saved=True):
        tiny.train(with_epochs(2, 2), tiny.images(), tmp_path, stop=lambda: next(calls))
    resumed = tiny.train(with_epochs(4, 3), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(resumed.model, tiny.train(with_epochs(4, 3), tiny.images()).model)


def test_a_layer_that_others_were_trained_on_keeps_its_epochs(tmp_path):
    tiny.train(with_epochs(2, 1), tiny.images(), tmp_path)
    with raises(FixedEpochs, layer=1, given=3, done=2):
        tiny.train(with_epochs(3, 1), tiny.images(), tmp_path, resume=True)
    with raises(FixedEpochs, layer=2, given=0, done=1):
        tiny.train(with_epochs(2, 0), tiny.images(), tmp_path, resume=True)


def test_settings_of_test_time_may_change(tmp_path):
    recipe = tiny.recipe()
    tiny.train(recipe, tiny.images(), tmp_path)
    other = replace(
        recipe,
        inference=InferenceSpec(lam=9.0),
        plan=(Phase(layer=1, update_pooling=(1,)),),
        descriptor=DescriptorSpec(raw=True),
    )
    run = tiny.train(other, tiny.images(), tmp_path, resume=True)
    assert len(run.history) == 4
    assert read_recipe(tmp_path / "recipe.toml") == other


def test_settings_of_training_may_not_change(tmp_path):
    tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    for other in (
        replace(tiny.recipe(), batch_size=3),
        replace(tiny.recipe(), seed=1),
        tiny.recipe(steps=3),
    ):
        with raises(RunDiffers, what="recipe", difference=Containing(" was ", " and is now ")):
            tiny.train(other, tiny.images(), tmp_path, resume=True)


def test_a_setting_that_is_newer_than_the_run_had_its_default_then():
    new = to_toml(tiny.recipe())
    old = "\n".join(line for line in new.splitlines() if not line.startswith("tolerance"))
    assert old.count("\n") < new.count("\n") - 1
    assert training_changes(old, tiny.recipe()) == ""
    changed = new.replace("tolerance = 0.0", "tolerance = 0.5").replace('"batch"', '"image"')
    assert "inference.tolerance was 0.5 and is now 0.0" in training_changes(changed, tiny.recipe())
