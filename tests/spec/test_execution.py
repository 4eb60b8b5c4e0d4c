"""Shards: which part of the work a process has."""

import os
from pathlib import Path

import pytest

from raising import raises
from whatwhere.errors import InvalidSetting, SpecError
from whatwhere.spec.execution import (
    ArrayWithGaps,
    Shard,
    StartedSeveralTimes,
    choose_shard,
    part_number,
)


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch):
    for name in os.environ:
        if name in ("RANK", "WORLD_SIZE") or name.startswith("SLURM_"):
            monkeypatch.delenv(name)


def test_the_option_comes_before_the_variables_of_schedulers(monkeypatch):
    assert choose_shard(None).is_all
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert choose_shard(None) == Shard(3, 4, "RANK")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "11")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "5")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "10")
    assert choose_shard(None) == Shard(2, 5, "SLURM_ARRAY_TASK_ID")
    monkeypatch.setenv("SLURM_ARRAY_TASK_STEP", "3")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "19")
    assert choose_shard(None) == Shard(4, 5, "SLURM_ARRAY_TASK_ID")
    assert choose_shard("1/1").is_all
    assert str(choose_shard("2/3")) == "2/3"


def test_parts_count_from_one():
    with raises(InvalidSetting, given={"--shard": "0/3"}, expected="a part from 1/3 to 3/3"):
        choose_shard("0/3")


@pytest.mark.parametrize("task", ["2", "7"])
def test_an_array_with_gaps_raises_in_all_of_its_tasks(monkeypatch, task):
    """--array=2,7 repeats two tasks; task 2 would be part 1 of 2."""
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", task)
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "2")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MAX", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_STEP", "1")
    with raises(ArrayWithGaps, count=2, first=2, last=7):
        choose_shard(None)
    monkeypatch.setenv("SLURM_ARRAY_TASK_STEP", "5")  # --array=2-7:5
    assert choose_shard(None).count == 2


@pytest.mark.parametrize(
    ("variables", "several"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, False),  # the script of sbatch --ntasks=4
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, False),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, True),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "3"}, True),
    ],
)
def test_processes_of_srun_need_a_part(monkeypatch, variables, several):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if not several:
        assert choose_shard(None).is_all
        return
    with pytest.raises(StartedSeveralTimes):
        choose_shard(None)
    assert choose_shard("1/1").is_all
    monkeypatch.setenv("RANK", "1")  # srun torchrun
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert choose_shard(None) == Shard(2, 8, "RANK")


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2"])
def test_other_words_raise(text):
    with pytest.raises(SpecError):
        choose_shard(text)


def test_parts_join_without_gaps():
    rows = [row for index in range(1, 8) for row in Shard(index, 7).rows(24)]
    assert rows == list(range(24))


def test_a_part_is_found_by_its_name():
    path = Shard(2, 12).part_of(Path("codes"), ".npz")
    assert path == Path("codes/part-00002-of-00012.npz")
    assert part_number(path) == Shard(2, 12)
    assert Shard().part_of(Path("codes.npz"), ".npz") == Path("codes.npz")
