"""What a measurement was made on: machine, versions, commit. Every result file carries it."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "numpy", "numba", "triton", "scikit-learn", "scipy", "kymatio")


def machine() -> dict[str, Any]:
    """Processor, graphics card, versions, commit and time, for the head of a result file."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in PACKAGES},
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def processor() -> str:
    """The processor's name, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit this runs from, marked where files differ; WHATWHERE_COMMIT, where it is set, is taken as it is."""
    if given := os.environ.get("WHATWHERE_COMMIT"):
        return given
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
