"""A few of the attacks of `make attack` in every test run, in a process of their own: they limit
memory and fork."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import tiny_training
from whatwhere.app import app


def attack(output: Path) -> None:
    """The attacks, and what they count as text."""
    with open(output, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.path.insert(0, str(Path(__file__).parent))
    import full_disk
    import hostile_files
    import kills

    print(kills.attack(1, seed=1, only=["encode"]))
    print(full_disk.attack(1, only=["encode"]))
    print(hostile_files.attack(144, seed=1))


NOT_KILLED = {
    "demo": "writes what train, classify and figures write",
    "download": "tests/data/test_catalogue.py breaks copies off",
    "svm": "writes nothing",
    "info": "writes nothing",
    "bench": "writes nothing",
}


def test_every_command_that_writes_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import kills

    killed = kills.commands(Path("inputs"))
    for name in commands(typer.main.get_command(app)):
        assert (name in NOT_KILLED) != any(each.startswith(name) for each in killed), name


def commands(group: object, before: str = "") -> Iterator[str]:
    """The names of all commands, with their groups."""
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
def test_no_attack_succeeds(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    attacker = tiny_training.process(attack, output)
    attacker.join()
    printed = output.read_text()
    assert attacker.exitcode == 0, printed
    assert "FAULT" not in printed
    assert "'full': 1" in printed
    assert "'read': 1" in printed
