"""What 50 steps by each rule of the step size leave on 100 digits, and their time:  python benchmarks/step_rules.py

The model that ships with the package, its first 100 embedded test digits, the CPU engine on one thread. Writes
benchmarks/results/step_rules.json.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch

from whatwhere import InferenceSpec, data, infer, load, models
from whatwhere.benchmark.machine import machine

RESULTS = Path(__file__).parent / "results" / "step_rules.json"
RULES: dict[str, dict[str, Any]] = {
    "image": {},
    "secant": {"step_size": "secant"},
    "image, momentum": {"momentum": True},
}


def measure(spec: InferenceSpec, digits: torch.Tensor) -> dict[str, float]:
    """Means over the images, the processor time of a step, and the share of the steps that raise the cost."""
    began = time.process_time()
    solution = infer(MODEL, digits, spec, engine="cpu")
    seconds = time.process_time() - began
    stats = solution.stats
    return {
        "cost": float(stats.cost[-1].mean()),
        "nonzeros": float(stats.nonzeros[-1].float().mean()),
        "microseconds_a_step": 1e6 * seconds / (len(digits) * spec.steps),
        "rising": float((stats.cost[1:] > stats.cost[:-1]).float().mean()),
    }


def main() -> None:
    torch.set_num_threads(1)
    digits = data.load("digits", split="test")[0:100]
    infer(MODEL, digits[:2], InferenceSpec(steps=1), engine="cpu")  # compile
    rows = []
    for alpha in (1.0, 0.5):
        for name, change in RULES.items():
            rows.append({"rule": name, "alpha": alpha, **measure(InferenceSpec(alpha=alpha, **change), digits)})
            print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps({"digits": 100, "steps": 50, "machine": machine(), "rows": rows}, indent=1) + "\n")


MODEL = load(models.path("mnist"))
if __name__ == "__main__":
    main()
