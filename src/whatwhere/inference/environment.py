"""Where this process runs: the device that it computes on, and the machine, for those who report measurements."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from whatwhere.errors import SpecError

CPU_ENGINES = ("cpu", "greedy")
PACKAGES = ("torch", "numpy", "numba", "triton", "scikit-learn", "scipy", "kymatio")


def choose_device(asked: torch.device | str, engine: str = "auto") -> torch.device:
    """The device asked for; 'auto' is a GPU where there is one and the engine can use it."""
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() and engine not in CPU_ENGINES else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise SpecError(f"device {asked!r} was given; expected auto, cpu, cuda, cuda:1, …") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError(f"device {str(asked)!r} was given; there is no GPU that torch can use here ('cpu' works)")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def machine() -> dict[str, Any]:
    """What this process runs on, now, as plain values: processor, GPU, versions of the packages, commit and time.

    >>> sorted(ww.inference.machine())
    ['commit', 'cores', 'gpu', 'processor', 'python', 'time', 'versions']
    """
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {name: installed_version(name) for name in PACKAGES},
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def processor() -> str:
    """The processor's name, as far as the system knows it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit this runs from, with a mark where files were changed; WHATWHERE_COMMIT overrides it."""
    if given := os.environ.get("WHATWHERE_COMMIT"):
        return given
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
