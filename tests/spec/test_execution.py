"""Shards: which part of the work a process has."""

from pathlib import Path

import pytest

from whatwhere.errors import SpecError
from whatwhere.spec.execution import Shard, choose_shard, part_number


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"):
        monkeypatch.delenv(name, raising=False)


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
