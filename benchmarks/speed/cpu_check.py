"""Whether a change kept the CPU engine fast:  python -m benchmarks.speed.cpu_check BEFORE AFTER
[ROUNDS]

Two source trees (folders that hold the package) measure the same image cases in turns, one process
each, one thread: the best of all rounds in milliseconds of processor time, and the ratio after /
before of the best and of the quartiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any


def cases() -> dict[str, tuple[Any, Any, int]]:
    """Name → model, images, steps."""
    import torch

    import whatwhere as ww

    torch.set_num_threads(1)
    layers = ww.ModelSpec.paper().layers
    digits = ww.data.load("digits", split="test")[slice(0, 50)]
    pictures = torch.rand(4, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    two, one = (
        ww.DeconvNet(ww.ModelSpec.paper(), seed=0),
        ww.DeconvNet(ww.ModelSpec(layers=layers[:1]), seed=0),
    )
    plain = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=16, pool_size=1),)), seed=0)
    colour = ww.DeconvNet(
        ww.ModelSpec(layers=(ww.LayerSpec(maps=16, filter_size=7),), channels=3), seed=0
    )
    return {
        "2 layers, 1 digit, 50 steps": (two, digits[:1], 50),
        "2 layers, 50 digits, 5 steps": (two, digits, 5),
        "1 layer, 1 digit, 50 steps": (one, digits[:1], 50),
        "1 layer, 50 digits, 10 steps": (one, digits, 10),
        "no pooling, 50 digits, 10 steps": (plain, digits, 10),
        "4 of 48 x 48 in colour, 10 steps": (colour, pictures, 10),
    }


def serve() -> None:
    """Measure the cases whose names come in, one a line."""
    import whatwhere as ww

    measured = cases()

    def seconds(name: str) -> float:
        model, images, steps = measured[name]
        began = time.process_time()
        ww.infer(model, images, ww.InferenceSpec(steps=steps), engine="cpu")
        return time.process_time() - began

    for name in measured:
        seconds(name)  # machine code is made
    print(json.dumps(list(measured)), flush=True)
    for line in sys.stdin:
        print(seconds(line.strip()), flush=True)


def main(before: str, after: str, rounds: str = "30") -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.speed.cpu_check"],
            env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in (before, after)
    ]
    (names, _) = (json.loads(worker.stdout.readline()) for worker in workers if worker.stdout)
    times: dict[str, list[list[float]]] = {name: [[], []] for name in names}
    for turn in range(int(rounds)):
        for name in names:
            for i in (0, 1) if turn % 2 else (1, 0):
                worker = workers[i]
                assert worker.stdin is not None
                assert worker.stdout is not None
                worker.stdin.write(name + "\n")
                worker.stdin.flush()
                times[name][i].append(float(worker.stdout.readline()))
    for name, both in times.items():
        old, new = (sorted(each) for each in both)
        row = {"case": name, "before": 1000 * old[0], "after": 1000 * new[0]}
        ratios = {"best": new[0] / old[0], "quartile": new[len(new) // 4] / old[len(old) // 4]}
        print(
            json.dumps(
                {
                    key: round(value, 3) if key != "case" else value
                    for key, value in (row | ratios).items()
                }
            )
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        serve()
