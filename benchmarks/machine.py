"""What a measurement ran on, for result files: benchmarks and the reproduction record it with
every number."""

import hashlib
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
    """What this process runs on, now, as plain values: processor, GPU, versions of the packages,
    commit, the checksum of uncommitted changes, and time."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {name: installed_version(name) for name in PACKAGES},
        "commit": commit(),
        "changes": changes(),
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
    """The commit this runs from, with a mark where files were changed; WHATWHERE_COMMIT overrides
    it."""
    if given := os.environ.get("WHATWHERE_COMMIT"):
        return given
    described = git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return None if described is None else described.decode().strip()


def changes() -> str | None:
    """The SHA-256 sum of `git diff HEAD`, which identifies uncommitted changes; None without any.

    Keep that diff if the result is to be repeated. Files that git does not know are not part of it.
    """
    difference = None if os.environ.get("WHATWHERE_COMMIT") else git("diff", "HEAD")
    return hashlib.sha256(difference).hexdigest() if difference else None


def git(*arguments: str) -> bytes | None:
    """What git prints; None outside a repository."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
