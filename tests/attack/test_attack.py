"""A few of the attacks of `make attack` in every test run, in a process of their own: they limit
memory and fork."""

import os
import sys
from pathlib import Path

import pytest

import tiny_training


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
