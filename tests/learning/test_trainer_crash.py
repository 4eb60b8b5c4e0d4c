"""A run that is killed, at any moment and again and again, ends as if nothing had happened."""

import errno
import os
import random
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import tiny_training as tiny
from whatwhere.errors import RunError
from whatwhere.learning import TrainingStopped
from whatwhere.learning.checkpoint import has_checkpoint
from whatwhere.model import load

KILLS = 6


@pytest.fixture(scope="module")
def reference():
    return tiny.train(tiny.recipe(), tiny.images()).model


class Crash(BaseException):
    """The moment a process dies: nothing after it is done."""


class DiskUntil:
    """Counts what is done to the disk, and fails from a given step on: writes stop half-way."""

    def __init__(self, monkeypatch, failure: BaseException, step: int) -> None:
        self.left, self.failure = step, failure

        def half(file, **arrays):
            file.write(b"half of a file")

        monkeypatch.setattr(np, "savez", self.watch(np.savez, half))
        for name in ("fsync", "replace"):
            monkeypatch.setattr(os, name, self.watch(getattr(os, name), lambda *_: None))

    def watch(self, function, half):
        def watched(*arguments, **more):
            self.left -= 1
            if self.left == 0:
                half(*arguments, **more)
            if self.left <= 0:
                raise self.failure
            return function(*arguments, **more)

        return watched


def disk_steps(store: str) -> int:
    """How often the training of these tests touches the disk."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        disk = DiskUntil(patch, Crash(), step=10**6)
        tiny.train(tiny.recipe(), tiny.images(), Path(folder) / "run", checkpoint_every=1, store=store)
        return 10**6 - disk.left


@pytest.mark.parametrize("store", ["file", "memory"])
@pytest.mark.parametrize("failure", [Crash(), OSError(errno.ENOSPC, "No space left on device")], ids=["crash", "full"])
def test_whatever_write_it_dies_at_it_resumes_to_the_same_bits(failure, store, reference, tmp_path):
    steps = disk_steps(store)
    assert steps > 60
    for step in [*random.Random(0).sample(range(1, steps - 3), 3), *range(steps - 3, steps + 1)]:
        folder = tmp_path / str(step)
        with pytest.MonkeyPatch.context() as patch:
            DiskUntil(patch, failure, step)
            with pytest.raises((Crash, RunError)) as end:
                tiny.train(tiny.recipe(), tiny.images(), folder, checkpoint_every=1, store=store)
        resume = has_checkpoint(folder / "checkpoint")
        if isinstance(failure, OSError):
            assert "No space left on device" in str(end.value)
            assert "make room" in str(end.value) or f"whatwhere train --resume {folder}" in str(end.value)
        run = tiny.train(tiny.recipe(), tiny.images(), folder, resume=resume)
        for model in (run.model, load(folder / "model.safetensors")):
            assert tiny.same_filters(model, reference), f"killed at step {step} of {steps}"


def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path):
    epochs, chance = 3, random.Random(0)
    expected = tiny.train(tiny.recipe(epochs), tiny.images()).model
    tiny.process(time.sleep, 0).join()  # the first one waits for torch to be imported
    began = time.monotonic()
    tiny.process(tiny.train_or_resume, tmp_path / "timed", epochs, "file").join()
    duration = time.monotonic() - began
    kills = runs = resumed = 0
    while kills < KILLS:
        folder, runs = tmp_path / f"run{runs}", runs + 1
        while True:
            resumed += has_checkpoint(folder / "checkpoint")
            process = tiny.process(tiny.train_or_resume, folder, epochs, ("file", "memory")[runs % 2])
            process.join(chance.uniform(0, 0.7 * duration))
            process.kill()
            process.join()
            if process.exitcode == 0:
                break
            assert process.exitcode == -9, "it ended by itself, with an error"
            kills += 1
        assert tiny.same_filters(load(folder / "model.safetensors"), expected)
    assert resumed >= KILLS // 2, "most kills must fall into training, not before it"


def train_into_a_limit(folder: Path, message: Path) -> None:
    """Files may not grow beyond 700 bytes: a real limit of a real disk, as the operating system knows it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
    report_error(folder, message)


def train_as_another_user(folder: Path, message: Path) -> None:
    os.setuid(65534)  # the administrator may write everywhere
    report_error(folder, message)


def report_error(folder: Path, message: Path) -> None:
    error = ""
    try:
        tiny.train(tiny.recipe(), tiny.images(), folder, resume=True, store="file")
    except RunError as raised:
        error = str(raised)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    message.write_text(error)


@pytest.fixture
def stopped():
    """A run stopped in its first epoch, in a folder that every user can reach."""
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)
        asked = iter([False, True])
        with pytest.raises(TrainingStopped):
            tiny.train(tiny.recipe(), tiny.images(), Path(home) / "run", stop=lambda: next(asked))
        yield Path(home) / "run"


@pytest.mark.parametrize(
    ("target", "reason"),
    [(train_into_a_limit, "File too large"), (train_as_another_user, "Permission denied")],
)
def test_a_disk_that_takes_no_more_is_reported_and_the_last_checkpoint_stands(target, reason, stopped, reference):
    if target is train_as_another_user and os.getuid() != 0:
        for path in (stopped, *stopped.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
        target = report_error
    message = stopped.parent / "message"
    tiny.process(target, stopped, message).join()
    assert reason in message.read_text()
    assert f"the last checkpoint is intact: fix this, then whatwhere train --resume {stopped}" in message.read_text()
    for path in (stopped, *stopped.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    run = tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True)
    assert tiny.same_filters(run.model, reference)
