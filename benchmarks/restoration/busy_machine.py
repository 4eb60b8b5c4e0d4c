"""Measure the processor time of denoising one picture beside other programs:
python -m benchmarks.restoration.busy_machine [--load N] [--out FILE]

Threads that wait for each other by spinning burn processor time, the more the busier the machine
is. N processes that compute all the time make it busy; 0 leaves it as it is, and the load at the
beginning is written. Each way of asking runs in a process of its own, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

IN_PYTHON = """
import sys, numpy as np, whatwhere as ww
from PIL import Image
pixels = np.asarray(Image.open(sys.argv[1]), np.float32) / 255
ww.restoration.denoise(pixels)
"""
WAYS = {
    "command": ({}, True),
    "command, one thread": ({"OMP_NUM_THREADS": "1"}, True),
    "command, threads that spin": ({"OMP_WAIT_POLICY": "ACTIVE"}, True),
    "in Python": ({}, False),
    "in Python, one thread": ({"OMP_NUM_THREADS": "1"}, False),
}


def seconds_of(words: list[str], environment: dict[str, str]) -> float:
    """Run a program; the processor seconds that it took."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
    before = used()
    subprocess.run(words, env=kept | environment, check=True, capture_output=True)
    return used() - before


def measure(folder: Path, repeats: int) -> dict[str, list[float]]:
    """Measure every way in turn."""
    picture = folder / "picture.png"
    chance = np.random.default_rng(0)
    y, x = np.mgrid[:256, :256] / 256
    pixels = 0.5 + 0.3 * np.sin(12 * x + 7 * y) + 0.1 * chance.standard_normal((256, 256))
    Image.fromarray((255 * pixels.clip(0, 1)).astype(np.uint8)).save(picture)
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(repeats + 1):
        for name, (environment, is_command) in WAYS.items():
            out = str(folder / f"{name}{number}.png")
            words = ["-m", "whatwhere", "denoise", str(picture), "--out", out]
            if not is_command:
                words = ["-c", IN_PYTHON, str(picture)]
            seconds = seconds_of([sys.executable, *words], environment)
            if number:  # the first time may compile
                found[name].append(round(seconds, 2))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(chosen.load)
    ]
    try:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), chosen.repeats)
    finally:
        for process in busy:
            process.kill()
    cores = len(os.sched_getaffinity(0))
    result = {"cores": cores, "added": chosen.load, "load": load, "processor seconds": found}
    text = json.dumps(result, indent=1)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
