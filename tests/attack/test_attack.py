"""A few of the attacks of `make attack` in every test run, in a process of their own: they limit
memory and fork."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import full_disk, hostile_files, kills
print(kills.attack(1, seed=1, only=["encode"]))
print(full_disk.attack(1, only=["encode"]))
print(hostile_files.attack(144, seed=1))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
def test_no_attack_succeeds() -> None:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAULT" not in done.stdout
    assert "'full': 1" in done.stdout
    assert "'read': 1" in done.stdout
