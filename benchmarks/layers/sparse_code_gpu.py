"""A training step of `SparseCode2d` on a GPU: eager, inside torch.compile, and the engine's forward
pass.

    python -m benchmarks.layers.sparse_code_gpu [--out FILE]

Five steps of the model `mnist` on 100 and 1,000 digits; wall milliseconds, the best of five.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

import whatwhere as ww


def milliseconds(work: Callable[[], object], calls: int = 5, repetitions: int = 5) -> float:
    """Return the wall time of one call, the best of the repetitions."""
    work()
    work()
    best = float("inf")
    for _ in range(repetitions):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / calls)
    return round(best * 1e3, 3)


def measure(images: torch.Tensor) -> dict[str, float]:
    code = ww.nn.SparseCode2d.from_model(ww.load("mnist").to("cuda"), steps=5)

    def forward() -> None:
        with torch.no_grad():
            code(images)

    def step_of(layer: torch.nn.Module) -> Callable[[], None]:
        def step() -> None:
            code.zero_grad()
            layer(images).square().sum().backward()

        return step

    def gradients() -> list[torch.Tensor]:
        return [p.grad.clone() for p in code.parameters() if p.grad is not None]

    found = {"forward without gradients, ms": milliseconds(forward)}
    found["training step, eager, ms"] = milliseconds(step_of(code))
    eager = gradients()
    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        step = step_of(torch.compile(code, mode=mode))
        found[f"training step, torch.compile {mode}, ms"] = milliseconds(step)
    differences = [
        float((a - b).norm() / b.norm()) for a, b in zip(gradients(), eager, strict=True)
    ]
    return {**found, "largest relative difference of gradients": max(differences)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/layers/results/sparse_code_gpu.json")
    )
    given = parser.parse_args()
    digits = ww.data.load("digits", split="train")
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rows": {count: measure(digits[:count].to("cuda")) for count in (100, 1000)},
    }
    print(json.dumps(found, indent=1))
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
