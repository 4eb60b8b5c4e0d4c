"""A rejected or interrupted training leaves nothing behind; locks are real, and do not follow planted links."""

import fcntl
import os
import shlex
from pathlib import Path

import pytest

import tiny_training as tiny
import whatwhere.storage.latent_files
from whatwhere.errors import RunError, WhatwhereError
from whatwhere.learning import TrainingStopped
from whatwhere.learning.run_folder import RunFolder

IMAGES = tiny.images()


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": "warp"},
        {"store": "disk"},
        {"latent_dtype": "int8"},
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
def test_interrupted_before_its_first_checkpoint_it_leaves_nothing_behind(call, tmp_path, monkeypatch):
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
    assert not list(tmp_path.rglob("lock"))


def test_files_that_were_there_before_stay(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "other.txt").write_text("mine")
    with pytest.raises(WhatwhereError):
        tiny.train(tiny.recipe(), IMAGES, tmp_path, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "other.txt"]


def test_the_lock_is_gone_after_training_and_after_a_stop(tmp_path):
    with pytest.raises(TrainingStopped):
        tiny.train(tiny.recipe(), IMAGES, tmp_path, stop=lambda: True)
    assert not (tmp_path / "checkpoint" / "lock").exists()


def test_a_planted_lock_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "lock").symlink_to(target)
    with pytest.raises(RunError, match=r"locking the run in .* failed"):
        tiny.train(tiny.recipe(), IMAGES, folder)
    assert target.read_text() == "precious"


def test_planted_latents_are_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    folder = tmp_path / "run" / "checkpoint" / "latents" / "layer1-0"
    folder.mkdir(parents=True)
    (folder / "p.npy").symlink_to(target)
    with pytest.raises(RunError):
        tiny.train(tiny.recipe(), IMAGES, tmp_path / "run", store="file")
    assert target.read_text() == "precious"


def test_a_lock_that_its_holder_has_just_removed_does_not_count(tmp_path, monkeypatch):
    """Between opening the file and locking it, the holder may remove it, and a third process hold a new file."""
    flock = fcntl.flock

    def race(handle, operation):
        flock(handle, operation)
        (tmp_path / "checkpoint" / "lock").unlink()
        (tmp_path / "checkpoint" / "lock").touch()

    monkeypatch.setattr(fcntl, "flock", race)
    with pytest.raises(RunError, match="another process is training"), RunFolder(tmp_path).locked():
        pass


def test_the_folder_of_the_latents_is_flushed_to_the_disk(tmp_path, monkeypatch):
    synced = []
    sync = whatwhere.storage.latent_files.sync_folder
    monkeypatch.setattr(whatwhere.storage.latent_files, "sync_folder", lambda path: (synced.append(path), sync(path)))
    tiny.train(tiny.recipe(), IMAGES, tmp_path, store="file")
    assert {tmp_path / "checkpoint" / "latents", tmp_path / "checkpoint"} <= set(synced)


@pytest.mark.parametrize("name", ["a b", "it's; rm -rf x", "$HOME", "bell\a"])
def test_the_command_to_continue_can_be_pasted(name, tmp_path):
    folder = tmp_path / name
    with pytest.raises(TrainingStopped) as stopped:
        tiny.train(tiny.recipe(), IMAGES, folder, stop=lambda: True)
    line = str(stopped.value).partition("continue with: ")[2]
    assert line.isprintable()
    if name.isprintable():
        assert shlex.split(line) == ["whatwhere", "train", "--resume", str(folder)]
    echoed = os.popen(f"bash -c {shlex.quote(line.replace('whatwhere train --resume', 'printf %s'))}").read()
    assert Path(echoed) == folder


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_the_system_does_not_support(name, tmp_path):
    with pytest.raises(WhatwhereError):
        tiny.train(tiny.recipe(), IMAGES, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
