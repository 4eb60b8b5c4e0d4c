"""How long one image takes: 50 steps for a batch of 1, from the image to its code.

    PYTHONPATH=src python3 -m benchmarks.speed.latency --out FILE [--device cpu|cuda]

The model that ships with the package, one test digit, fresh each time, one thread. `solve` is the
engine alone, `infer` all that a user waits for, checks included; `around` is `infer` with an engine
that takes no time, so what is not the engine's. Medians and 90th percentiles of
many calls, after a few that compile and record; on a CPU also the processor time, which other
programs disturb less. `PYTHONPATH` may name an older source tree.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.model import Problem
from whatwhere.spec import InferenceSpec, LineSearch, Phase

try:
    from whatwhere.engines import ENGINES
except ImportError:  # an older tree, measured for comparison
    ENGINES = import_module("whatwhere.inference.engines").ENGINES

JOINT = Phase(layer=2, update_pooling=(1, 2))
WARM_UP = 4


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(
    call: Callable[[torch.Tensor], Any], images: torch.Tensor, repeats: int
) -> dict[str, float]:
    """Milliseconds of one call with one image, another one each time."""
    wall, own = [], []
    for i in range(WARM_UP + repeats):
        v = images[i % len(images)][None]
        synchronise(images.device)
        began, busy = time.perf_counter(), time.process_time()
        call(v)
        synchronise(images.device)
        if i >= WARM_UP:
            wall.append(1e3 * (time.perf_counter() - began))
            own.append(1e3 * (time.process_time() - busy))
    median, tail = np.percentile(wall, [50, 90])
    return {
        "median_ms": float(median),
        "p90_ms": float(tail),
        "least_ms": min(wall),
        "processor_ms": float(np.median(own)),
    }


class Instant:
    """An engine that has the solution already."""

    name = "instant"
    converges = False

    def __init__(self, solution: Any) -> None:
        self.solution = solution

    def solve(self, problem: Problem) -> Any:
        return self.solution

    def unsupported_reason(self, problem: Problem) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--steps", type=int, default=50)
    given = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(given.device)
    model = ww.load("mnist").to(device)
    images = ww.data.load("digits", split="test")[:20].to(device)
    found: dict[str, Any] = {
        "machine": machine(),
        "device": str(device),
        "steps": given.steps,
        "rows": [],
    }
    ENGINES["instant"] = Instant(ww.infer(model, images[:1], InferenceSpec(steps=given.steps)))
    around = timed(lambda v: ww.infer(model, v, engine="instant"), images, 3 * given.repeats)
    found["rows"].append({"rule": "any", "engine": "none", "call": "around", **around})
    print(found["rows"][-1], flush=True)
    del ENGINES["instant"]
    for rule, step in {"image": LineSearch(), "image, momentum": LineSearch(momentum=True)}.items():
        spec = InferenceSpec(step=step, steps=given.steps)
        for name, engine in ENGINES.items():
            if engine.unsupported_reason(Problem(model, images[:1], JOINT, spec)) is not None:
                continue
            repeats = given.repeats if name != "reference" else max(2, given.repeats // 10)

            def solve(v: torch.Tensor, engine: Any = engine, spec: InferenceSpec = spec) -> None:
                with torch.no_grad():
                    engine.solve(Problem(model, v, JOINT, spec))

            def infer(v: torch.Tensor, name: str = name, spec: InferenceSpec = spec) -> None:
                ww.infer(model, v, spec, engine=name)

            for what, call in (("solve", solve), ("infer", infer)):
                row = {"rule": rule, "engine": name, "call": what, **timed(call, images, repeats)}
                found["rows"].append(row)
                print(row, flush=True)
                given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
