"""A rejected or interrupted training leaves nothing behind; locks are real."""

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_training as tiny
import whatwhere as ww
import whatwhere.engines.reference.filter_map
import whatwhere.files
import whatwhere.learning.algorithm
from raising import Containing, raises
from whatwhere.errors import NoSuchRun, RunError, UnknownFormat, UnusableRunFile, WhatwhereError
from whatwhere.learning import TrainingOptions, TrainingStopped, read_run, train
from whatwhere.learning.reports import EpochReport
from whatwhere.learning.run_folder import (
    NoRun,
    NotARun,
    RunDiffers,
    RunExists,
    open_folder,
    read_history,
)
from whatwhere.model import DeconvNet, load, save
from whatwhere.spec import DescriptorSpec, LayerSpec, ModelSpec, Recipe
from whatwhere.spec.toml import to_toml

IMAGES = tiny.images()


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": "warp"},
        {"store": "disk"},
        {"resume": True},
        {"images": IMAGES * float("nan")},
    ],
)
def test_a_rejected_training_leaves_nothing_behind(settings, tmp_path):
    images = settings.pop("images", IMAGES) if "images" in settings else IMAGES
    with pytest.raises(WhatwhereError):
        tiny.train(tiny.recipe(), images, tmp_path / "a" / "b", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", range(1, 9))
def test_interrupted_before_its_first_checkpoint_it_leaves_nothing_behind(
    call, tmp_path, monkeypatch
):
    calls, fsync = iter(range(1, 100)), os.fsync

    def interrupt(handle):
        if next(calls) == call:
            raise KeyboardInterrupt
        fsync(handle)

    monkeypatch.setattr(os, "fsync", interrupt)
    (tmp_path / "notes.txt").write_text("mine")
    try:
        tiny.train(tiny.recipe(), IMAGES, tmp_path, stop=lambda: True)
    except KeyboardInterrupt:
        monkeypatch.undo()
    except TrainingStopped:
        pytest.fail("it was not interrupted")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["notes.txt"] or (tmp_path / "checkpoint" / "state.safetensors").is_file()
    assert not list(tmp_path.rglob("*.part"))


def test_files_that_were_there_before_stay(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "other.txt").write_text("mine")
    with pytest.raises(WhatwhereError):
        tiny.train(tiny.recipe(), IMAGES, tmp_path, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "other.txt"]


def test_planted_latents_are_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    folder = tmp_path / "run" / "checkpoint" / "latents"
    folder.mkdir(parents=True)
    for generation in (0, 1):
        (folder / f"batch1-{generation}.npz").symlink_to(target)
    tiny.train(tiny.recipe(), IMAGES, tmp_path / "run", store="file")
    assert target.read_text() == "precious"


def test_one_process_trains_in_a_folder_at_a_time(tmp_path):
    with (
        open_folder(tmp_path),
        pytest.raises(RunError, match=f"Another process is training in {tmp_path}"),
        open_folder(tmp_path),
    ):
        pass


def test_the_folder_of_the_latents_is_flushed_to_the_disk(tmp_path, monkeypatch):
    synced, sync = [], whatwhere.files.sync_folder
    monkeypatch.setattr(
        whatwhere.files, "sync_folder", lambda path: (synced.append(path), sync(path))
    )
    tiny.train(tiny.recipe(), IMAGES, tmp_path, store="file")
    latents, checkpoint = tmp_path / "checkpoint" / "latents", tmp_path / "checkpoint"
    assert synced.index(latents) < len(synced) - synced[::-1].index(checkpoint), (
        "the name of the new folder"
    )


@pytest.mark.parametrize("name", ["a b", "it's; rm -rf x", "$HOME"])
def test_the_command_to_continue_can_be_pasted(name, tmp_path):
    folder = tmp_path / name
    with pytest.raises(TrainingStopped) as stopped:
        tiny.train(tiny.recipe(), IMAGES, folder, stop=lambda: True)
    line = str(stopped.value).partition("Continue with: ")[2]
    assert line.isprintable()
    assert shlex.split(line) == ["whatwhere", "train", "--resume", str(folder)]
    echoed = os.popen(
        f"bash -c {shlex.quote(line.replace('whatwhere train --resume', 'printf %s'))}"
    ).read()
    assert Path(echoed) == folder


# Resuming -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference():
    """Training in memory, without a stop."""
    return tiny.train(tiny.recipe(), tiny.images())


@pytest.fixture
def stopped(tmp_path):
    """A run that was stopped in its second epoch."""
    folder = tmp_path / "run"
    with pytest.raises(
        TrainingStopped,
        match=f"epoch 2, after 2 of 3 batches. Continue with: whatwhere .* {folder}",
    ):
        tiny.train(tiny.recipe(), tiny.images(), folder, stop=tiny.StopAfter(6))
    return folder


def clear(folder, remove):
    for path in folder.glob("checkpoint/latents/batch1-*.npz"):
        remove(path)


def resumes(folder, reference) -> bool:
    run = tiny.train(tiny.recipe(), tiny.images(), folder, resume=True)
    return tiny.same_filters(run.model, reference.model)


def test_a_changed_recipe_raises_an_error_that_names_its_changes(stopped, reference):
    with pytest.raises(
        RunError,
        match=r"the recipe changed \(learning.1.inference.lam was 2.0 and is now 3.0, learning.2",
    ):
        tiny.train(tiny.recipe(lam=3.0), tiny.images(), stopped, resume=True)
    assert resumes(stopped, reference)


@pytest.mark.parametrize("other", [tiny.images(seed=1), tiny.images(4), tiny.images().double()])
def test_other_images_raise(other, stopped, reference):
    with raises(RunDiffers, what="images"):
        tiny.train(tiny.recipe(), other, stopped, resume=True)
    assert resumes(stopped, reference)


def test_a_folder_that_holds_a_run_is_not_overwritten(stopped, reference):
    with raises(RunExists, finished=False):
        tiny.train(tiny.recipe(), tiny.images(), stopped)
    assert resumes(stopped, reference)


def test_two_processes_cannot_train_in_one_folder(stopped):
    messages = []

    def intrude(report):
        with pytest.raises(RunError) as raised:
            tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True)
        messages.append(str(raised.value))

    tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True, on_epoch=intrude)
    assert "Another process is training in" in messages[0]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda folder: (folder / "checkpoint/state.safetensors").unlink(),
            "Cannot find the checkpoint",
        ),
        (
            lambda folder: (folder / "checkpoint/state.safetensors").write_bytes(b"x" * 100),
            "is not a usable checkpoint",
        ),
        (lambda folder: clear(folder, Path.unlink), "annot read"),
        (lambda folder: clear(folder, lambda path: path.write_bytes(b"")), "annot read"),
    ],
)
def test_a_damaged_checkpoint_raises_and_the_model_stays_usable(harm, message, stopped):
    harm(stopped)
    with pytest.raises(RunError, match=message):
        tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True)
    assert load(stopped / "model.safetensors").spec == tiny.recipe().model


def test_there_is_nothing_to_resume_in_an_empty_folder(tmp_path):
    with raises(NoSuchRun, kind=Containing("the checkpoint")):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True)


# One reader for run folders and model files; what does not belong together raises an error --------


@pytest.fixture
def run(tmp_path) -> Path:
    tiny.train(tiny.recipe(), tiny.images(), tmp_path / "digits")
    return tmp_path / "digits"


def test_a_run_folder(run):
    trained = read_run(run)
    assert (trained.name, trained.recipe) == ("digits", tiny.recipe())
    assert [(report.layer, report.epoch) for report in trained.history] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]
    assert all(isinstance(report, EpochReport) for report in trained.history)
    assert trained.model.spec == tiny.recipe().model
    assert repr(trained).startswith("TrainedRun('digits', Recipe(layers of 2 and 3 maps")


def test_a_model_file_has_the_papers_recipe_with_its_own_model(run):
    trained = read_run(run / "model.safetensors")
    # the file does not say what the model is used for, so the images decide what rows describe
    expected = replace(Recipe.paper(tiny.recipe().model), descriptor=DescriptorSpec())
    assert trained.recipe == expected
    assert trained.history == ()
    assert tiny.same_filters(trained.model, read_run(run).model)


def test_a_folder_saved_by_hand_needs_no_history(tmp_path):
    save(DeconvNet(tiny.recipe().model), tmp_path / "model.safetensors")
    (tmp_path / "recipe.toml").write_text(to_toml(tiny.recipe()))
    assert read_run(tmp_path).history == ()


def test_a_test_time_setting_may_be_edited(run):
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text.replace("lam = 5.0", "lam = 7.0"))
    assert read_run(run).recipe.inference.lam == 7.0


def test_a_recipe_of_another_model_is_named(run):
    save(
        DeconvNet(ModelSpec(layers=(LayerSpec(maps=2, filter_size=3),))), run / "model.safetensors"
    )
    with raises(RunDiffers, difference=Containing("filter_size was 3 and is now 2")):
        read_run(run)


GOOD = (
    b'{"format": "whatwhere history 1", "layer": 1, "epoch": 1, "reconstruction": 3.0,'
    b' "penalty": 4.0, "nonzeros": 2.5}'
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "Expecting property name"),
        (GOOD + b'\n{"lay', "Unterminated string"),
        (GOOD + b"\n\n[1, 2]\n", "a line is list; expected dict"),
        (GOOD.replace(b"3.0", b"null"), "reconstruction = None; expected a number"),
        (GOOD.replace(b"4.0", b"NaN"), "penalty = .*; expected a finite number"),
        (
            GOOD.replace(b"4.0", b"1" + b"0" * 400),
            "penalty = .*; expected a finite number",
        ),
        (GOOD.replace(b"4.0", b"1" * 5000), "digits"),
        (GOOD.replace(b"}", b', "seconds": "x"}'), "seconds = 'x'"),
        (GOOD.replace(b"}", b', "engine": [1]}'), r"engine = \[1\]; expected text"),
        (GOOD + b"\xff", "utf-8"),
        (b"[" * 100_000, "(maximum recursion|Stack overflow)"),
    ],
)
def test_a_damaged_history_is_named(content, message, run):
    (run / "history.jsonl").write_bytes(content)
    with raises(UnusableRunFile) as caught:
        read_run(run)
    assert re.search(message, caught.value.reason)
    assert caught.value.path == run / "history.jsonl"
    assert "train --resume" in caught.value.remedy


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_history_is_read_from_a_regular_file_of_limited_size(run):
    (run / "history.jsonl").write_bytes(GOOD)
    with pytest.raises(UnusableRunFile) as caught:
        read_history(run / "history.jsonl", longest=10)
    assert caught.value.reason == "The file has more than 10 bytes"
    for make in (os.mkfifo, os.mkdir):
        (run / "history.jsonl").unlink()
        make(run / "history.jsonl")
        with pytest.raises(UnusableRunFile) as caught:
            read_run(run)
        assert caught.value.reason.startswith(("it is a pipe", "it is a folder"))


def test_a_history_of_another_format_is_named(run):
    for form in (b'"whatwhere history 2"', b"null", b"[3]"):
        (run / "history.jsonl").write_bytes(GOOD.replace(b'"whatwhere history 1"', form))
        with pytest.raises(UnusableRunFile) as caught:
            read_run(run)
        assert isinstance(caught.value.__cause__, UnknownFormat)
        assert caught.value.__cause__.expected == "whatwhere history 1"


def test_a_history_needs_no_more_than_the_costs(run):
    (run / "history.jsonl").write_bytes(GOOD)
    assert read_run(run).history[0].cost == 7.0


def test_resuming_writes_a_damaged_history_again(run):
    (run / "history.jsonl").write_bytes(b"{")
    tiny.train(tiny.recipe(), tiny.images(), run, resume=True)
    assert len(read_run(run).history) == 4


@pytest.mark.parametrize("name", ["nowhere", "x" * 300, "a\0b"])
def test_what_is_not_there_is_named(name, tmp_path):
    with raises(NoRun, path=tmp_path / name, missing=()):
        read_run(tmp_path / name)


def test_names_are_quoted_and_escaped_in_messages(tmp_path):
    (tmp_path / "a b").mkdir()
    with raises(NoRun, missing=("recipe.toml", "model.safetensors")):
        read_run(tmp_path / "a b")
    with pytest.raises(RunError) as error:
        read_run(tmp_path / "bell\a\x1b[2J")
    assert str(error.value).isprintable()


def test_the_repr_of_a_trained_model(run):
    options = TrainingOptions(engine="reference", device="cpu")
    trained = train(tiny.images(), tiny.recipe(), options=options)
    cost = trained.history[-1].cost
    assert repr(trained).endswith(f"4 epochs, cost {cost:.4g} per image)")


@pytest.mark.parametrize(("name", "kind"), [("a.csv", "recording"), ("a.png", "picture")])
def test_data_in_place_of_a_run_is_named(name, kind, tmp_path):
    (tmp_path / name).write_bytes(b"1,2")
    for read in (ww.load, ww.read_run):
        with raises(NotARun, path=str(tmp_path / name), kind=f"a {kind}"):
            read(tmp_path / name)


def test_a_folder_of_pictures_is_no_run_and_is_not_trained_into(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with raises(NoRun, path=tmp_path) as caught:
        ww.read_run(tmp_path)
    assert f"train {tmp_path} --out RUN" in str(caught.value)
    with pytest.raises(NoRun) as caught:
        ww.read_run(tmp_path / "mnits")
    assert "--out" not in str(caught.value), "advice to train into a name with a mistake"
