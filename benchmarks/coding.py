"""What different settings of inference leave on 100 digits:  python benchmarks/coding.py

The model that ships with the package, its first 100 embedded test digits, the CPU engine. Writes
benchmarks/results/logs.json. The last part varies the length of a block of steps, after which
momentum starts again and the step of the pooling variables is halved (engines/convergence.py).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from log import Log
from machine import machine

from whatwhere import InferenceSpec, data, infer, load, models
from whatwhere.engines import convergence
from whatwhere.errors import ConvergenceWarning
from whatwhere.spec import LineSearch

RESULTS = Log("coding")
DIGITS = 100
SETTINGS = {
    "paper: 50 steps": InferenceSpec(),
    "50 steps with momentum": InferenceSpec(step=LineSearch(momentum=True)),
    "300 steps with momentum": InferenceSpec(step=LineSearch(momentum=True), steps=300),
    "coding(tolerance=1e-3)": InferenceSpec.coding(tolerance=1e-3),
    "coding()": InferenceSpec.coding(),
    "coding(tolerance=1e-4)": InferenceSpec.coding(tolerance=1e-4),
}
BLOCKS = (25, 50, 100, 200)


def measure(spec: InferenceSpec, digits: torch.Tensor) -> dict[str, Any]:
    """Means over the images."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        solution = infer(MODEL, digits, spec, engine="cpu")
    stats = solution.stats
    error = (solution.reconstruction - digits).square().flatten(1).sum(1) / digits.square().flatten(
        1
    ).sum(1)
    return {
        "steps": float((stats.step != 0).sum(0).float().mean()),
        "most_steps": len(stats.step),
        "cost": float(stats.cost[-1].mean()),
        "nonzeros": float(stats.nonzeros[-1].float().mean()),
        "error_share": float(error.mean()),
        "warning": str(caught[0].message) if caught else "",
    }


def main() -> None:
    digits = data.load("digits", split="test")[0:DIGITS]
    infer(MODEL, digits[:2], InferenceSpec(steps=1), engine="cpu")  # compile
    rows = {}
    for name, spec in SETTINGS.items():
        rows[name] = measure(spec, digits)
        print(name, rows[name], flush=True)
    blocks = {}
    for length in BLOCKS:
        convergence.BLOCK = length
        blocks[str(length)] = measure(
            InferenceSpec.coding(steps=400, tolerance=1e-12), digits[: DIGITS // 4]
        )
        print("blocks of", length, blocks[str(length)], flush=True)
    content = {
        "digits": DIGITS,
        "machine": machine(),
        "settings": rows,
        "400 steps by length of a block": blocks,
    }
    RESULTS.write(content)


MODEL = load(models.path("mnist"))
if __name__ == "__main__":
    main()
