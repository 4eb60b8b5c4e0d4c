"""What 50 steps by each rule of the step size leave on 100 digits, and their time:

    python benchmarks/step_rules.py [--errors 3000]

The model that ships with the package, its first 100 embedded test digits, the CPU engine on one
thread. Writes benchmarks/results/logs.json. With --errors, linear SVMs on descriptors of so many
training digits are fitted to one half and tested on the other, both ways, for the line search; that
is added to the file.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from log import Log
from machine import machine

from whatwhere import InferenceSpec, data, infer, load, models
from whatwhere.classification import describe_images, fit_svm
from whatwhere.spec import Fixed, LineSearch, Power, Recipe

RESULTS = Log("step_rules")
RULES: dict[str, dict[str, Any]] = {
    "image": {},
    "fixed, momentum": {"step": Fixed(momentum=True)},
    "image, momentum": {"step": LineSearch(momentum=True)},
}


def measure(spec: InferenceSpec, digits: torch.Tensor) -> dict[str, float]:
    """Means over the images, the processor time of a step, and the share of the steps that raise
    the cost."""
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


def validation_errors(spec: InferenceSpec, count: int) -> int:
    """Errors on `count` training digits, each by the SVM of the half that it is not in."""
    digits = data.load("digits", split="train")
    rows = describe_images(
        MODEL, digits.subset(range(count)), replace(Recipe.paper(), inference=spec)
    )
    labels, middle, errors = np.asarray(digits.labels[:count]), count // 2, 0
    halves = np.arange(middle), np.arange(middle, count)
    for fit, test in (halves, halves[::-1]):
        svm = fit_svm(rows[fit], labels[fit], C=30.0)
        errors += int((svm.predict(rows[test]) != labels[test]).sum())
    return errors


def add_errors(count: int) -> None:
    """Add the errors of the rules that search along the gradient to the file."""
    found = RESULTS.read()
    found["validation"] = {"digits": count, "errors": {}}
    for name in ("image", "image, every second step", "image, every third step"):
        found["validation"]["errors"][name] = validation_errors(InferenceSpec(**RULES[name]), count)
        print(name, found["validation"]["errors"][name], flush=True)
        RESULTS.write(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--errors", type=int)
    count = parser.parse_args().errors
    torch.set_num_threads(1)
    if count:
        add_errors(count)
        return
    digits = data.load("digits", split="test")[0:100]
    infer(MODEL, digits[:2], InferenceSpec(steps=1), engine="cpu")  # compile
    rows = []
    for alpha in (1.0, 0.5):
        for name, change in RULES.items():
            rows.append(
                {
                    "rule": name,
                    "alpha": alpha,
                    **measure(InferenceSpec(penalty=Power(alpha=alpha), **change), digits),
                }
            )
            print(rows[-1], flush=True)
    measured = {"digits": 100, "steps": 50, "machine": machine(), "rows": rows}
    earlier = RESULTS.read({})
    RESULTS.write({**earlier, **measured})


MODEL = load(models.path("mnist"))
if __name__ == "__main__":
    main()
