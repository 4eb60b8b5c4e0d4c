"""A few of the attacks of `make attack` in every test run, each in a process of its own: they limit memory and fork."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
@pytest.mark.parametrize(
    "program",
    [
        "hostile_files.py --files 144 --seed 1",
        "kills.py --kills 1 --seed 1 --commands encode",
        "full_disk.py --rooms 1 --commands distill",
    ],
)
def test_no_attack_succeeds(program: str) -> None:
    script, *arguments = program.split()
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name(script), *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "FAULT" not in result.stdout
