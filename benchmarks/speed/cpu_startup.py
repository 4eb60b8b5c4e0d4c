"""How long the CPU engine takes to start: in a process that must compile, and in one that finds the
compiled code.

python -m benchmarks.speed.cpu_startup --out cpu_startup.json

Each process imports the package, makes the paper's model and infers one image with one step. The
compiled code is kept in a folder of its own, empty at first. The processor time is given next to
the wall time: on a busy machine the two differ. The reference engine in the same kind of process
shows what importing torch alone takes. "first use" is what a new user meets: five digits in 50
steps with engine="auto" and no machine code, which another process then makes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import machine

PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
from whatwhere import DeconvNet, InferenceSpec, ModelSpec, infer
model, images = DeconvNet(ModelSpec.paper()), torch.rand(1, 1, 28, 28)
since = time.perf_counter(), time.process_time()
infer(model, images, InferenceSpec(steps=1), engine=sys.argv[1])
print(time.perf_counter() - since[0], time.process_time() - since[1])
"""
FIRST_USE = """
import time, whatwhere as ww
solution = ww.infer(ww.load("mnist"), ww.data.load("digits", split="test")[:5])
print(solution.engine, time.process_time(), flush=True)
"""


def start(engine: str, cache: str) -> dict[str, float]:
    """Seconds of one process: altogether, and of the first call of `infer` in it."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    since = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, engine],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    wall, processor = map(float, run.stdout.split())
    return {
        "process": time.perf_counter() - since,
        "first call": wall,
        "first call, processor": processor,
    }


def first_use() -> dict[str, str | float]:
    """Seconds of a new user's first process until the result is there, without machine code."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        environment, since = os.environ | {"NUMBA_CACHE_DIR": cache}, time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", FIRST_USE],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            engine, processor = process.stdout.readline().split()
            seconds = time.perf_counter() - since
        wait_for_machine_code(Path(cache))
    return {"engine": engine, "process": seconds, "processor": float(processor)}


def wait_for_machine_code(cache: Path, most: float = 300) -> None:
    """Until the process that compiles has ended: the next measurement should have the machine for
    itself."""
    end = time.perf_counter() + most
    while not list(cache.rglob("*.nbc")) and time.perf_counter() < end:
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as cache:
        seconds = {
            "compiling": start("cpu", cache),
            "compiled": [start("cpu", cache) for _ in range(3)],
            "reference": [start("reference", cache) for _ in range(3)],
            "first use": [first_use() for _ in range(3)],
        }
    text = json.dumps(
        {"benchmark": "start of the CPU engine", "machine": machine(), "seconds": seconds}, indent=1
    )
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
