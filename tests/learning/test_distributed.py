"""Many real processes on 127.0.0.1: they agree, notice one that is killed, and continue in another number."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_training as tiny
from whatwhere.errors import RunError, SpecError
from whatwhere.learning import TrainingStopped, distributed
from whatwhere.model import load
from whatwhere.spec.toml import override

IMAGES = 9  # five batches: unequal shares for two and for three processes


def start(count: int, target, *arguments) -> list:
    port = tiny.free_port()
    return [tiny.process(target, rank, count, port, *arguments) for rank in range(count)]


def train_as(rank: int, count: int, port: int, folder: Path, resume: bool, stop_after: int, store: str) -> None:
    """One process of a run; the filters that it ends with are saved for each rank. It may stop on its own."""
    tiny.as_rank(rank, count, port)
    batches = iter(range(1, 10**6))
    asked_of_the_last_rank_only = rank == count - 1

    def stop() -> bool:
        return asked_of_the_last_rank_only and next(batches) == stop_after

    try:
        run = tiny.train(tiny.recipe(), tiny.images(IMAGES), folder, resume=resume, stop=stop, store=store)
    except TrainingStopped:
        sys.exit(7)
    torch.save(run.model.filters, folder / f"filters{rank}.pt")


def look_late(rank: int) -> None:
    """Rank 1 asks who is absent a second after rank 0, which holds the answer and must not leave before."""
    if rank == 1:
        absent = distributed._Meeting.absent
        distributed._Meeting.absent = lambda meeting: (time.sleep(1), absent(meeting))[1]


def die_amid_training(rank: int, count: int, port: int, folder: Path) -> None:
    """The last rank kills itself in the second epoch; the others write down how they end."""
    tiny.as_rank(rank, count, port)
    look_late(rank)

    def on_batch(report) -> None:
        if rank == count - 1 and report.epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        tiny.train(tiny.recipe(), tiny.images(IMAGES), folder, on_batch=on_batch)
    except RunError as error:
        (folder / f"error{rank}").write_text(str(error))


def stall_amid_training(rank: int, count: int, port: int, folder: Path) -> None:
    """The last rank stops answering in the second epoch, as under SIGSTOP; the others write down how they end."""
    tiny.as_rank(rank, count, port)
    look_late(rank)

    def on_batch(report) -> None:
        if rank == count - 1 and report.epoch == 2:
            os.kill(os.getpid(), signal.SIGSTOP)

    try:
        tiny.train(tiny.recipe(), tiny.images(IMAGES), folder, on_batch=on_batch, timeout=3.0)
    except RunError as error:
        (folder / f"error{rank}").write_text(str(error))


def join(processes: list, limit: float = 180) -> list[int]:
    end = time.monotonic() + limit
    for process in processes:
        process.join(max(0, end - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


@pytest.fixture(scope="module")
def alone():
    return tiny.train(tiny.recipe(), tiny.images(IMAGES))


def close(filters: list, others: list) -> bool:
    return all(float((f - g).norm() / g.norm()) <= 1e-5 for f, g in zip(filters, others, strict=True))


@pytest.mark.parametrize(("count", "store"), [(2, "memory"), (3, "file")])
def test_any_number_of_processes_gives_the_same_filters(count, store, alone, tmp_path):
    assert join(start(count, train_as, tmp_path, False, 0, store)) == [0] * count
    assert close(load(tmp_path / "model.safetensors").filters, alone.model.filters)
    ranks = [torch.load(tmp_path / f"filters{rank}.pt") for rank in range(count)]
    assert all(torch.equal(f, g) for other in ranks[1:] for f, g in zip(ranks[0], other, strict=True))
    costs = [json.loads(line)["cost"] for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert costs == pytest.approx([report.cost for report in alone.history], rel=1e-5)


def stream_as(rank: int, count: int, port: int, folder: Path) -> None:
    tiny.as_rank(rank, count, port)
    run = tiny.train(tiny.stream_recipe(batch_size=4), tiny.images(IMAGES), folder, image_count=13)
    torch.save(run.model.filters, folder / f"filters{rank}.pt")


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_processes_learns_the_same_from_a_stream(count, tmp_path):
    alone = tiny.train(tiny.stream_recipe(batch_size=4), tiny.images(IMAGES), image_count=13)
    assert join(start(count, stream_as, tmp_path)) == [0] * count
    for rank in range(count):
        assert close(torch.load(tmp_path / f"filters{rank}.pt"), alone.model.filters)
    costs = [json.loads(line)["cost"] for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert costs == pytest.approx([report.cost for report in alone.history], rel=1e-5)


def refuse_as(rank: int, count: int, port: int, folder: Path, batch_size: int, per: str) -> None:
    tiny.as_rank(rank, count, port)
    recipe = override(
        tiny.stream_recipe(batch_size=batch_size), {"learning": {"each": {"inference": {"step": {"per": per}}}}}
    )
    try:
        tiny.train(recipe, tiny.images(IMAGES), image_count=12)
    except SpecError as error:
        (folder / f"error{rank}").write_text(str(error))


@pytest.mark.parametrize(
    ("batch_size", "per", "message"),
    [
        (4, "batch", "step.per = 'batch' with update = 'batch' and 2 processes"),
        (1, "image", "batches of 1 images with 2"),
    ],
)
def test_a_stream_that_processes_cannot_share_is_an_error(batch_size, per, message, tmp_path):
    assert join(start(2, refuse_as, tmp_path, batch_size, per)) == [0, 0]
    assert message in (tmp_path / "error0").read_text()


def test_a_killed_process_ends_the_others_and_the_run_resumes_in_another_number(alone, tmp_path):
    began = time.monotonic()
    assert join(start(3, die_amid_training, tmp_path)) == [0, 0, -9]
    assert time.monotonic() - began < 100  # well before the 120 s of a process that does not answer
    for rank in (0, 1):
        message = (tmp_path / f"error{rank}").read_text()
        assert f"process {rank} of 3 lost the others: process 2 ended, or did not answer within 120 s" in message
        assert "start all processes again with --resume" in message
    assert join(start(2, train_as, tmp_path, True, 0, "memory")) == [0, 0]
    assert close(load(tmp_path / "model.safetensors").filters, alone.model.filters)


def test_a_process_that_hangs_is_named_after_the_time_out(tmp_path):
    processes = start(3, stall_amid_training, tmp_path)
    assert join(processes[:2]) == [0, 0]
    processes[2].kill()  # a stopped process cannot end by itself
    for rank in (0, 1):
        message = (tmp_path / f"error{rank}").read_text()
        assert "process 2 ended, or did not answer within 3 s" in message, message
        assert "--set timeout=SECONDS" in message


def test_stopped_by_one_of_them_amid_an_epoch_the_run_resumes_in_another_number(alone, tmp_path):
    assert join(start(2, train_as, tmp_path, False, 5, "memory")) == [7, 7]
    run = tiny.train(tiny.recipe(), tiny.images(IMAGES), tmp_path, resume=True)
    assert close(run.model.filters, alone.model.filters)
    assert [r.cost for r in run.history] == pytest.approx([r.cost for r in alone.history], rel=1e-5)


def test_on_one_process_everything_is_the_identity():
    with distributed.process_group(torch.device("cpu")):
        assert (distributed.rank(), distributed.world_size()) == (0, 1)
        tensor = torch.ones(2)
        assert distributed.all_reduce_sum(tensor) is tensor
        distributed.barrier()


def test_each_process_has_a_device_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert distributed.choose_device("cuda:1") == torch.device("cuda:1")
    assert distributed.choose_device("cpu") == torch.device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert distributed.choose_device("cuda") == torch.device("cuda:3")
    assert distributed.choose_device("auto") == torch.device("cuda:3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert distributed.choose_device("auto") == torch.device("cpu")


def test_a_device_that_is_not_there_raises(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SpecError, match="'cuda:1' was given; there is no GPU"):
        distributed.choose_device("cuda:1")
    with pytest.raises(SpecError, match="'gpu' was given; expected auto, cpu"):
        distributed.choose_device("gpu")


@pytest.mark.slow
def test_torchrun_starts_the_command(tmp_path):
    images = tmp_path / "images.npy"
    np.save(images, tiny.images(IMAGES).numpy())
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    changes = ("engine=reference", "batch_size=2", "learning.each.epochs=1", "learning.each.inference.steps=1")
    settings = [f"--set={change}" for change in changes]
    command = ["-m", "whatwhere", "train", str(images), f"--out={tmp_path / 'run'}", *settings]
    done = subprocess.run([*launcher, *command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("layer 2  epoch 1/1") == 1, "only the first process says how it goes"
    assert load(tmp_path / "run" / "model.safetensors").spec.depth == 2
