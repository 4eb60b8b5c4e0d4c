"""The time of one step per pixel: a photograph of 512×512 pixels against digits, for each engine.

    python -m benchmarks.speed.time_per_pixel
    python -m benchmarks.speed.time_per_pixel --engine triton --device cuda

The shipped model of digits, joint inference with line search. On a CPU it is processor time of one
thread, which other programs on the machine disturb little; on a GPU wall time. The photograph is
inferred as a whole, and in tiles (`infer_tiled`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_image

from benchmarks.log import Log
from benchmarks.machine import machine
from whatwhere import load as load_model
from whatwhere import models
from whatwhere.data import load
from whatwhere.inference import infer, infer_tiled
from whatwhere.spec import InferenceSpec, Phase

JOINT = Phase(layer=2, update_pooling=(1, 2))
RESULTS = Log("time_per_pixel")
SIZE, DIGITS = 512, 100


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_of(work: Callable[[], Any], device: torch.device, repeats: int) -> list[float]:
    work()  # compiled now
    seconds = []
    for _ in range(repeats):
        synchronise(device)
        clock = time.perf_counter if device.type == "cuda" else time.process_time
        start = clock()
        work()
        synchronise(device)
        seconds.append(clock() - start)
    return seconds


def measure(engine: str, device: torch.device, steps: int, repeats: int) -> list[dict[str, Any]]:
    model, spec = load_model(models.path("mnist")).to(device), InferenceSpec(steps=steps)
    digits = load("digits", split="train")[slice(0, DIGITS)].to(device)
    grey = load_sample_image("china.jpg").mean(2).astype(np.float32) / 255
    photograph = torch.from_numpy(np.block([[grey], [grey[::-1]]])[:SIZE, :SIZE].copy())[
        None, None
    ].to(device)
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "digits": (digits.numel(), lambda: infer(model, digits, spec, [JOINT], engine=engine)),
        "photograph": (
            photograph.numel(),
            lambda: infer(model, photograph, spec, [JOINT], engine=engine),
        ),
        "photograph in tiles": (
            photograph.numel(),
            lambda: infer_tiled(
                model, photograph[0], spec, [JOINT], engine=engine, tile=256, overlap=64
            ),
        ),
    }
    rows = []
    for name, (pixels, work) in ways.items():
        seconds = time_of(work, device, repeats)
        nanoseconds = statistics.median(seconds) / (pixels * steps) * 1e9
        rows.append(
            {
                "engine": engine,
                "images": name,
                "ns_per_pixel_and_step": nanoseconds,
                "seconds": seconds,
            }
        )
        rows[-1]["ratio_to_digits"] = nanoseconds / rows[0]["ns_per_pixel_and_step"]
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", nargs="+", default=["cpu", "reference"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        row
        for name in args.engine
        for row in measure(name, torch.device(args.device), args.steps, args.repeats)
    ]
    runs = RESULTS.read({})
    runs["cpu" if args.device == "cpu" else "gpu"] = {
        "machine": machine(),
        "steps": args.steps,
        "results": rows,
    }
    RESULTS.write(runs)


if __name__ == "__main__":
    main()
