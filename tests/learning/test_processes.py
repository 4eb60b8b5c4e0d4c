"""Several real processes on this machine: they agree, miss one that is killed, and continue in
another number."""

import json
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny_training as tiny
from raising import raises
from whatwhere.engines.devices import TooFewDevices, choose_device
from whatwhere.errors import InvalidSetting, RunError, SpecError
from whatwhere.learning import TrainingStopped, processes
from whatwhere.learning.processes import Meeting, ProcessesDiffer, ProcessGroup
from whatwhere.model import load
from whatwhere.spec import LineSearch

IMAGES = 9  # five batches of two: unequal shares for two and for four processes
TOLERANCE = 1e-5  # of filters with another number of processes, as a share of their length


def start(count: int, target, *arguments) -> list:
    """Real processes with the variables that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [tiny.process(target, rank, count, port, *arguments) for rank in range(count)]


def join(started: list, limit: float = 120) -> list[int]:
    """Exit codes; processes that do not end within the limit are killed."""
    end = time.monotonic() + limit
    for process in started:
        process.join(max(0, end - time.monotonic()))
    codes = [process.exitcode for process in started]
    for process in started:
        process.kill()
    return codes


def as_rank(rank: int, count: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def close(filters, others) -> bool:
    pairs = zip(filters, others, strict=True)
    return all(float((f - g).norm() / g.norm()) <= TOLERANCE for f, g in pairs)


def costs(folder: Path) -> list[float]:
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["cost"] for line in lines]


def filters_of_ranks(folder: Path, count: int) -> list:
    return [torch.load(folder / f"filters{rank}.pt") for rank in range(count)]


def same_bits(ranks: list) -> bool:
    pairs = [zip(ranks[0], other, strict=True) for other in ranks[1:]]
    return all(torch.equal(f, g) for pair in pairs for f, g in pair)


# Training by epochs -------------------------------------------------------------------------------


def train_as(rank, count, port, folder: Path, resume=False, stop_after=0, store="memory") -> None:
    """One process of a run. The last one may ask to stop; each saves the filters it ends with."""
    as_rank(rank, count, port)
    asked = iter(range(1, 10**6))

    def stop() -> bool:
        return rank == count - 1 and next(asked) == stop_after

    images = tiny.images(IMAGES)
    try:
        run = tiny.train(
            tiny.recipe(), images, folder, resume=resume, stop=stop, store=store, timeout=60.0
        )
    except TrainingStopped:
        sys.exit(7)
    torch.save(run.model.filters, folder / f"filters{rank}.pt")


@pytest.fixture(scope="module")
def alone():
    return tiny.train(tiny.recipe(), tiny.images(IMAGES))


@pytest.mark.parametrize(("count", "store"), [(2, "memory"), (4, "file")])
def test_any_number_of_processes_gives_the_same_filters(count, store, alone, tmp_path):
    assert join(start(count, train_as, tmp_path, False, 0, store)) == [0] * count
    assert close(load(tmp_path / "model.safetensors").filters, alone.model.filters)
    assert same_bits(filters_of_ranks(tmp_path, count))
    assert costs(tmp_path) == pytest.approx([report.cost for report in alone.history], rel=1e-5)
    assert not (tmp_path / "checkpoint" / "latents").exists(), "a finished run needs none"


def test_a_run_stopped_by_one_process_resumes_with_the_same_number_bit_by_bit(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    assert join(start(2, train_as, whole)) == [0, 0]
    assert join(start(2, train_as, parts, False, 4)) == [7, 7]
    assert join(start(2, train_as, parts, True)) == [0, 0]
    assert same_bits([*filters_of_ranks(whole, 2), *filters_of_ranks(parts, 2)])
    assert costs(whole) == costs(parts)


def test_a_run_stopped_within_an_epoch_resumes_with_another_number(alone, tmp_path):
    assert join(start(2, train_as, tmp_path, False, 5)) == [7, 7]
    run = tiny.train(tiny.recipe(), tiny.images(IMAGES), tmp_path, resume=True)
    assert close(run.model.filters, alone.model.filters)
    assert costs(tmp_path) == pytest.approx([report.cost for report in alone.history], rel=1e-5)


def test_a_run_of_one_process_resumes_with_three(alone, tmp_path):
    with pytest.raises(TrainingStopped):
        tiny.train(tiny.recipe(), tiny.images(IMAGES), tmp_path, stop=tiny.StopAfter(3))
    assert join(start(3, train_as, tmp_path, True)) == [0, 0, 0]
    assert close(load(tmp_path / "model.safetensors").filters, alone.model.filters)


def expect_error_as(rank, count, port, folder: Path) -> None:
    as_rank(rank, count, port)
    try:
        tiny.train(tiny.recipe(), tiny.images(IMAGES), folder / "run", timeout=30.0)
    except RunError as error:
        (folder / f"error{rank}").write_text(str(error))


def test_an_error_of_the_first_process_ends_the_others_with_its_words(tmp_path):
    tiny.train(tiny.recipe(), tiny.images(IMAGES), tmp_path / "run")
    assert join(start(2, expect_error_as, tmp_path)) == [0, 0]
    assert "already has a finished run" in (tmp_path / "error0").read_text()
    assert "already has a finished run" in (tmp_path / "error1").read_text()


def train_what_differs(rank, count, port, folder: Path, what: str) -> None:
    """The last process has other images or settings; each writes down how it ends."""
    as_rank(rank, count, port)
    images, recipe = tiny.images(IMAGES), tiny.recipe()
    if rank == count - 1:
        if what == "settings":
            recipe = replace(recipe, seed=recipe.seed + 1)
        else:
            images = images[:-2] if what == "fewer images" else images * 0.5
    try:
        tiny.train(recipe, images, folder / "run", timeout=60.0)
    except ProcessesDiffer as error:
        (folder / f"error{rank}").write_text(f"{error.what} {error.ranks}")


@pytest.mark.parametrize("what", ["settings", "fewer images", "other images"])
def test_processes_with_other_images_or_settings_raise_in_all(what, tmp_path):
    """Fewer images ended a process without a word, and others were learned together."""
    assert join(start(3, train_what_differs, tmp_path, what)) == [0, 0, 0]
    for rank in range(3):
        assert (tmp_path / f"error{rank}").read_text() == f"{what.split()[-1]} (2,)"


# Training in a stream -----------------------------------------------------------------------------


def stream_as(rank, count, port, folder: Path, resume=False, stop_after=0) -> None:
    as_rank(rank, count, port)
    asked = iter(range(1, 10**6))

    def stop() -> bool:
        return rank == count - 1 and next(asked) == stop_after

    recipe = tiny.stream_recipe(batch_size=4)
    images = tiny.images(IMAGES)
    try:
        run = tiny.train(
            recipe, images, folder, image_count=13, resume=resume, stop=stop, timeout=60.0
        )
    except TrainingStopped:
        sys.exit(7)
    torch.save(run.model.filters, folder / f"filters{rank}.pt")


@pytest.fixture(scope="module")
def stream_alone():
    return tiny.train(tiny.stream_recipe(batch_size=4), tiny.images(IMAGES), image_count=13)


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_processes_learns_the_same_from_a_stream(count, stream_alone, tmp_path):
    assert join(start(count, stream_as, tmp_path)) == [0] * count
    ranks = filters_of_ranks(tmp_path, count)
    assert close(ranks[0], stream_alone.model.filters)
    assert same_bits(ranks)
    expected = [report.cost for report in stream_alone.history]
    assert costs(tmp_path) == pytest.approx(expected, rel=1e-5)


def test_a_stopped_stream_resumes_with_another_number(stream_alone, tmp_path):
    assert join(start(2, stream_as, tmp_path, False, 3)) == [7, 7]
    recipe = tiny.stream_recipe(batch_size=4)
    run = tiny.train(recipe, tiny.images(IMAGES), tmp_path, image_count=13, resume=True)
    assert close(run.model.filters, stream_alone.model.filters)


def end_stream_as(rank, count, port, folder: Path) -> None:
    """The stream ends before `image_count`, in the last process's piece of a batch."""
    as_rank(rank, count, port)
    recipe = tiny.stream_recipe(batch_size=4)
    try:
        tiny.train(recipe, iter([tiny.images(7)]), folder, image_count=13, timeout=30.0)
    except Exception as error:
        (folder / f"error{rank}").write_text(f"{type(error).__name__}: {error}")


def test_a_stream_that_ends_stops_all_processes_with_a_checkpoint(tmp_path):
    assert join(start(2, end_stream_as, tmp_path)) == [0, 0]
    for rank in (0, 1):
        assert (tmp_path / f"error{rank}").read_text().startswith("StreamError")
    assert (tmp_path / "checkpoint" / "state.safetensors").exists()


def test_a_stream_with_less_than_an_image_for_each_process_raises(tmp_path):
    from whatwhere.learning.training_data import require_shares

    recipe = tiny.stream_recipe(batch_size=2)
    require_shares(recipe, 12, ProcessGroup(world_size=2))
    with raises(InvalidSetting, given="batches of 2 images with 3 processes"):
        require_shares(recipe, 12, ProcessGroup(world_size=3))


def share_a_step_as(rank, count, port, folder: Path) -> None:
    as_rank(rank, count, port)
    by_image = tiny.stream_recipe(batch_size=4)
    inference = replace(by_image.learning[0].inference, step=LineSearch(per="batch"))
    learning = tuple(replace(layer, inference=inference) for layer in by_image.learning)
    recipe = replace(by_image, learning=learning)
    try:
        tiny.train(recipe, tiny.images(IMAGES), folder / "run", timeout=30.0)
    except SpecError as error:
        (folder / f"error{rank}").write_text(str(error))


def test_one_step_size_for_a_batch_that_processes_share_raises_in_all(tmp_path):
    assert join(start(2, share_a_step_as, tmp_path)) == [0, 0]
    for rank in (0, 1):
        message = (tmp_path / f"error{rank}").read_text()
        assert "step.per = 'batch' with update = 'batch' and 2 processes" in message
        assert "expected step.per = 'image'" in message
    assert not (tmp_path / "run" / "checkpoint").exists()


# A process that is missing ------------------------------------------------------------------------


def fail_amid_training(rank, count, port, folder: Path, number: int, timeout: float) -> None:
    """The last process gets a signal in the second epoch; the others write down how they end."""
    as_rank(rank, count, port)
    if rank == 1:  # asks later than process 0, which holds the answer and must not leave before
        absent = Meeting.absent
        Meeting.absent = lambda meeting: (time.sleep(1), absent(meeting))[1]

    def on_batch(report) -> None:
        if rank == count - 1 and report.epoch == 2:
            os.kill(os.getpid(), number)

    images = tiny.images(IMAGES)
    try:
        tiny.train(tiny.recipe(), images, folder, on_batch=on_batch, timeout=timeout)
    except RunError as error:
        (folder / f"error{rank}").write_text(str(error))


def test_a_killed_process_ends_the_others_and_the_run_continues(alone, tmp_path):
    began = time.monotonic()
    started = start(3, fail_amid_training, tmp_path, signal.SIGKILL, 300.0)
    assert join(started) == [0, 0, -signal.SIGKILL]
    assert time.monotonic() - began < 100, "not only after the timeout"
    for rank in (0, 1):
        message = (tmp_path / f"error{rank}").read_text()
        expected = f"Process {rank + 1} of 3 (rank {rank}) stops, because process 3 of 3 (rank 2)"
        assert message.startswith(f"{expected} ended or did not answer within 300 s.")
        assert "The last checkpoint is intact. Continue with: torchrun" in message
        assert f"-m whatwhere train --resume {tmp_path}" in message
        assert "pair.cc" not in message
    assert join(start(2, train_as, tmp_path, True)) == [0, 0]
    assert close(load(tmp_path / "model.safetensors").filters, alone.model.filters)


def test_a_process_that_hangs_is_named_after_the_timeout(tmp_path):
    started = start(3, fail_amid_training, tmp_path, signal.SIGSTOP, 3.0)
    assert join(started[:2]) == [0, 0]
    started[2].kill()  # a stopped process cannot end by itself
    for rank in (0, 1):
        message = (tmp_path / f"error{rank}").read_text()
        assert "process 3 of 3 (rank 2) ended or did not answer within 3 s" in message


# One process, and shares --------------------------------------------------------------------------


def test_one_process_is_the_identity():
    with processes.open_processes(torch.device("cpu"), 1.0) as group:
        tensor = torch.ones(2)
        assert group.world_size == 1
        assert group.all_reduce_sum(tensor) is tensor
        assert group.broadcast(tensor) is tensor
        assert group.any(True)
        assert not group.any(False)


def test_every_number_and_every_row_belongs_to_one_process():
    groups = [ProcessGroup(rank, 3) for rank in range(3)]
    assert sorted(n for group in groups for n in group.share(8)) == list(range(8))
    pieces = [group.part(10, 18) for group in groups]
    assert [row for piece in pieces for row in range(*piece)] == list(range(10, 18))


def test_each_process_of_a_machine_has_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:3")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert choose_device("auto", engine="cpu") == torch.device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "4")
    with raises(TooFewDevices, process=4, count=4):
        choose_device("auto")


def launch(arguments: list[str], output: Path) -> None:
    """What `torchrun` does."""
    from torch.distributed.run import main

    with open(output, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    main(arguments)


@pytest.mark.slow
def test_torchrun_starts_the_command(tmp_path):
    import numpy as np

    images = tmp_path / "images.npy"
    np.save(images, tiny.images(IMAGES).numpy())
    changes = ["engine=reference", "batch_size=2", "learning.each.epochs=1"]
    settings = [f"--set={change}" for change in [*changes, "learning.each.inference.steps=1"]]
    command = ["-m", "whatwhere", "train", str(images), "--recipe=paper", *settings]
    output = tmp_path / "output.txt"
    arguments = ["--standalone", "--nproc-per-node=2", *command, f"--out={tmp_path / 'run'}"]
    launcher = tiny.process(launch, arguments, output)
    launcher.join(120)
    printed = output.read_text()
    assert launcher.exitcode == 0, printed
    assert printed.count("layer 2  epoch 1/1") == 1, "only the first process reports"
    assert load(tmp_path / "run" / "model.safetensors").spec.depth == 2
