"""An attack in several processes: each takes a part with a seed of its own, and the counts are
added."""

from __future__ import annotations

import collections
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

Tallies = dict[str, collections.Counter[str]]


def write_counts(out: Path, tallies: Tallies) -> None:
    """Write the counts of an attack; they may grow until it ends."""
    out.write_text(json.dumps({name: dict(tally) for name, tally in tallies.items()}, indent=1))


def attack_in_parts(
    program: str, size: Sequence[str], seed: int, processes: int, seconds: float
) -> Tallies:
    """Run a program of this folder several times at once, and add up what they count.

    size     the option for the size of a part, and its value
    seconds  after which parts that have not come to their end are ended; what they counted until
             then counts
    """
    end = time.monotonic() + seconds
    totals: Tallies = {}
    with tempfile.TemporaryDirectory() as temporary:
        files = [Path(temporary) / f"{part}.json" for part in range(processes)]
        parts = []
        for part, file in enumerate(files):
            options = [*size, "--seed", str(seed + part), "--out", str(file)]
            parts.append(subprocess.Popen([sys.executable, program, *options]))
        ended_here = set()
        for part in parts:
            try:
                part.wait(max(0.0, end - time.monotonic()) if math.isfinite(end) else None)
            except subprocess.TimeoutExpired:
                part.kill()
                part.wait()
                ended_here.add(part.pid)
        for number, file in enumerate(files):
            died = parts[number].returncode not in (0, 1)
            if died and parts[number].pid not in ended_here:
                totals.setdefault("parts", collections.Counter())["FAULT a part died"] += 1
            counts = json.loads(file.read_text()) if file.exists() else {}
            for name, tally in counts.items():
                totals[name] = totals.get(name, collections.Counter()) + collections.Counter(tally)
    return totals


def report(tallies: Tallies) -> bool:
    """Print the counts; whether there was a fault."""
    for name, tally in tallies.items():
        print(f"{name:24} {dict(tally)}")
    total = sum(tallies.values(), collections.Counter())
    print(f"{total.total():,} in all: {dict(total)}")
    return any(key.startswith("FAULT") for key in total)
