"""Training: the same bits in memory and in files, and after every stop."""

import errno
import hashlib
import json
import os
import platform
import random
import resource
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_training as tiny
import whatwhere.learning.latent_store
from raising import raises
from whatwhere.engines import ENGINES
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.errors import EmptySet, InvalidSetting, NotFinite, RunError, UnknownEngine
from whatwhere.inference import infer
from whatwhere.learning import EpochReport, TrainingOptions, TrainingStopped, train
from whatwhere.learning.checkpoint import has_checkpoint
from whatwhere.learning.latent_store import NoRoom, free_memory, latents_fit, latents_per_image
from whatwhere.model import DeconvNet, load
from whatwhere.spec import (
    EveryEpoch,
    InferenceSpec,
    LayerSpec,
    LearningSpec,
    LineSearch,
    ModelSpec,
    Recipe,
)
from whatwhere.spec.penalty import Power


@pytest.fixture(scope="module")
def reference():
    """Training in memory, without a stop."""
    return tiny.train(tiny.recipe(), tiny.images())


@pytest.mark.parametrize("store", ["auto", "memory", "file"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_memory_and_files_give_the_same_bits(store, in_folder, reference, tmp_path):
    run = tiny.train(
        tiny.recipe(), tiny.images(), tmp_path / "run" if in_folder else None, store=store
    )
    assert tiny.same_filters(run.model, reference.model)
    assert [r.cost for r in run.history] == [r.cost for r in reference.history]


@pytest.mark.parametrize(
    ("engine", "error"), [("warp", UnknownEngine), ("triton", UnsupportedProblem)]
)
def test_an_unsupported_engine_raises_before_the_run_begins(engine, error, tmp_path):
    if engine == "triton" and torch.cuda.is_available():
        pytest.skip("with a GPU it is supported")
    with pytest.raises(error):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path / "run", engine=engine)
    assert not (tmp_path / "run" / "recipe.toml").exists()
    tiny.train(tiny.recipe(), tiny.images(), tmp_path / "run")


def test_a_run_is_a_folder_that_holds_the_model_and_the_history(reference, tmp_path):
    run = tiny.train(tiny.recipe(), tiny.images(), tmp_path / "runs" / "a")
    assert run.folder == tmp_path / "runs" / "a"
    names = sorted(path.relative_to(run.folder).as_posix() for path in run.folder.rglob("*"))
    assert names == [
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
    assert {"reconstruction", "penalty", "nonzeros", "dead_maps", "seconds", "engine"} <= lines[
        0
    ].keys()


def test_the_history_is_what_the_last_step_of_inference_measured(monkeypatch):
    ends = []
    watched = tiny.WatchedEngine(lambda problem, solution: ends.append(solution))
    monkeypatch.setitem(ENGINES, "reference", watched)
    run = tiny.train(replace(tiny.recipe(epochs=1)), tiny.images())
    first = ends[:3]  # three batches of layer 1
    assert run.history[0].reconstruction == pytest.approx(
        sum(float(s.stats.reconstruction[-1].sum()) for s in first) / 5
    )
    assert run.history[0].nonzeros == sum(int((s.features != 0).sum()) for s in first) / 5
    assert run.history[0].images == 5


# both stores and both intervals, not in every combination
@pytest.mark.parametrize(("store", "every"), [("memory", 0), ("file", 1)])
def test_stopped_after_any_batch_and_resumed_it_ends_with_the_same_bits(
    store, every, reference, tmp_path
):
    options = {"store": store, "checkpoint_every": every}
    stops = 0
    resume = False
    while True:
        try:
            run = tiny.train(
                tiny.recipe(),
                tiny.images(),
                tmp_path,
                resume=resume,
                stop=tiny.StopAfter(1),
                **options,
            )
            break
        except TrainingStopped:
            stops, resume = stops + 1, True
    assert stops == 15, (
        "after each of three batches and at the end of each of four epochs, but for the very last"
    )
    assert tiny.same_filters(run.model, reference.model)
    assert [r.cost for r in run.history] == [r.cost for r in reference.history]
    assert {r.engine for r in run.history} == {"reference"}
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 4


def test_stopped_without_a_folder_says_that_nothing_was_saved():
    with raises(TrainingStopped, saved=False):
        tiny.train(tiny.recipe(), tiny.images(), stop=lambda: True)


def test_resuming_a_finished_run_changes_nothing(reference, tmp_path):
    tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    again = tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(again.model, reference.model)
    assert len(again.history) == 4


def test_the_history_reports_how_long_the_filters_took(reference, monkeypatch):
    watched = tiny.WatchedEngine(filter_map=lambda linear_map: (time.sleep(0.07), linear_map)[1])
    monkeypatch.setitem(ENGINES, "reference", watched)  # three batches
    slow = tiny.train(tiny.recipe(), tiny.images())
    assert all(0 < epoch.filter_seconds < epoch.seconds for epoch in reference.history)
    assert all(0.2 < epoch.filter_seconds < epoch.seconds for epoch in slow.history)
    old = {
        name: value for name, value in slow.history[0].table().items() if name != "filter_seconds"
    }
    assert EpochReport.of(old).filter_seconds == 0, (
        "histories of before it was reported can be read"
    )


def test_bad_calls_raise_errors(tmp_path):
    with raises(InvalidSetting, given={"resume": True, "out": None}):
        tiny.train(tiny.recipe(), tiny.images(), resume=True)
    with raises(InvalidSetting, given={"checkpoint_every": -1}):
        tiny.train(tiny.recipe(), tiny.images(), checkpoint_every=-1)
    with pytest.raises(EmptySet):
        tiny.train(tiny.recipe(), tiny.images(0))
    with pytest.raises(NotFinite):
        tiny.train(tiny.recipe(), tiny.images() * float("inf"), tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_the_size_of_latents_is_what_inference_returns():
    layers = (
        LayerSpec(maps=4, pool_size=3, pool_stride=2, pool_maps=2),
        LayerSpec(maps=3, filter_size=2),
    )
    model = DeconvNet(ModelSpec(layers=layers))
    latents = infer(
        model, torch.rand(1, 1, 9, 7), InferenceSpec(steps=1), engine="reference"
    ).latents
    assert latents_per_image(model.spec, 9, 7) == sum(
        tensor.numel() for tensor in latents.tensors()
    )


def test_latents_are_kept_in_memory_if_they_fit(tmp_path, monkeypatch):
    cpu = torch.device("cpu")
    assert free_memory(cpu) > 0
    monkeypatch.setattr(whatwhere.learning.latent_store, "free_memory", lambda _: 1000)
    assert latents_fit(500, cpu, tmp_path)
    assert not latents_fit(501, cpu, tmp_path)
    with raises(NoRoom, memory=1000):
        latents_fit(10**18, cpu, tmp_path)


RECORDED_ON = ("Linux", "aarch64", "2.13.0+cpu", "DEFAULT")
HASHES = {
    "reference": "416348c5a50621694e07695ee47cfcae5d7a6ca2538eab2836b8817877b9a39d",
    "cpu": "3e57ffdb100d0326d80b9ed35fd7db98774dbe7730a5308123c3e621e2225530",
}


def this_machine() -> tuple[str, ...]:
    return (
        platform.system(),
        platform.machine(),
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
    )


@pytest.mark.skipif(
    this_machine() != RECORDED_ON, reason="the hashes were recorded on another kind of machine"
)
@pytest.mark.parametrize("engine", HASHES)
def test_a_small_training_gives_the_same_bits(engine: str) -> None:
    inference = InferenceSpec(
        lam=2.0, penalty=Power(alpha=0.5), steps=5, step=LineSearch(per="batch")
    )
    learning = LearningSpec(inference=inference, epochs=2, update=EveryEpoch(reset_at=(1,)))
    recipe = Recipe(model=ModelSpec.paper(), learning=(learning, learning), batch_size=8, seed=0)
    options = TrainingOptions(engine=engine, device="cpu")
    model = train(
        whatwhere.data.load("digits", split="train")[slice(0, 20)], recipe, options=options
    ).model
    digest = hashlib.sha256()
    for f in model.filters:
        digest.update(f.contiguous().numpy().tobytes())
    assert digest.hexdigest() == HASHES[engine]


FEWEST_KILLS = 5


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
        tiny.train(
            tiny.recipe(), tiny.images(), Path(folder) / "run", checkpoint_every=1, store=store
        )
        return 10**6 - disk.left


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("failure", "store"),
    [(Crash(), "file"), (Crash(), "memory"), (FULL, "file")],
    ids=["crash, file", "crash, memory", "full, file"],
)
def test_whatever_write_it_dies_at_it_resumes_to_the_same_bits(failure, store, reference, tmp_path):
    steps = disk_steps(store)
    assert steps > 60
    for step in [*random.Random(0).sample(range(1, steps - 2), 2), *range(steps - 2, steps + 1)]:
        folder = tmp_path / str(step)
        with pytest.MonkeyPatch.context() as patch:
            DiskUntil(patch, failure, step)
            with pytest.raises((Crash, RunError)) as end:
                tiny.train(tiny.recipe(), tiny.images(), folder, checkpoint_every=1, store=store)
        resume = has_checkpoint(folder / "checkpoint")
        if isinstance(failure, OSError):
            assert "No space left on device" in str(end.value)
            assert "disk space" in str(end.value) or f"whatwhere train --resume {folder}" in str(
                end.value
            )
        run = tiny.train(tiny.recipe(), tiny.images(), folder, resume=resume)
        for model in (run.model, load(folder / "model.safetensors")):
            assert tiny.same_filters(model, reference.model), f"killed at step {step} of {steps}"


@pytest.mark.parametrize("store", ["file", "memory"])
def test_killed_again_and_again_it_ends_with_the_same_bits(store, tmp_path):
    epochs, chance = 3, random.Random(0)
    expected = tiny.train(tiny.recipe(epochs), tiny.images()).model
    counted, folder = tmp_path / "calls", tmp_path / "run"
    tiny.process(tiny.count_calls, counted, tmp_path / "counted", epochs, store).join()
    calls = int(counted.read_text())
    kills = resumed = 0
    while True:
        resumed += has_checkpoint(folder / "checkpoint")
        last = chance.randrange(int(0.6 * calls))
        process = tiny.process(tiny.train_until_killed, last, folder, epochs, store)
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL, "it ended by itself, with an error"
        kills += 1
    assert tiny.same_filters(load(folder / "model.safetensors"), expected)
    assert kills >= FEWEST_KILLS
    assert resumed >= FEWEST_KILLS // 2, "most kills must fall into training, not before it"


def train_into_a_limit(folder: Path, message: Path) -> None:
    """Files may not grow beyond 700 bytes: a real limit of a real disk, as the operating system
    knows it."""
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
def test_a_disk_that_takes_no_more_is_reported_and_the_last_checkpoint_stands(
    target, reason, stopped, reference
):
    if target is train_as_another_user and os.getuid() != 0:
        for path in (stopped, *stopped.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
        target = report_error
    message = stopped.parent / "message"
    tiny.process(target, stopped, message).join()
    assert reason in message.read_text()
    assert (
        f"The last checkpoint is intact: fix this, then whatwhere train --resume {stopped}"
        in message.read_text()
    )
    for path in (stopped, *stopped.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    run = tiny.train(tiny.recipe(), tiny.images(), stopped, resume=True)
    assert tiny.same_filters(run.model, reference.model)
