"""Trials on claims of the paper that do not hold here (RESULTS.md): where does the difference come from?

    whatwhere data get mnist
    python benchmarks/why.py phases sparsity

Nothing here looks at the test images: SVMs learn from the first 10,000 training images and are judged by the last.

phases    the models of the table `joint`, each with its three ways of inference, told apart by fewer and fewer labels
sparsity  max and Gaussian pooling trained with several λ₂: non-zeros against the error of the reconstruction
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from whatwhere import data
from whatwhere.classification import describe_images, protocol
from whatwhere.data.splits import few_labels
from whatwhere.experiments.machine import machine
from whatwhere.experiments.results import Results
from whatwhere.experiments.scales import read_scale
from whatwhere.experiments.subjects import model_subject
from whatwhere.experiments.tables import cells_of
from whatwhere.learning import train
from whatwhere.model import load
from whatwhere.spec_toml import amend

HERE = Path(__file__).parent
SCALE = read_scale("paper")
PART = 10_000  # images to learn from, and as many to be judged by
C = 30.0  # what most cells of the paper's scale chose
DRAWS = 10


def phases() -> Iterator[dict[str, Any]]:
    """Errors of every cell of `joint` with 10,000, 1,000 and 300 labels."""
    folder = HERE.parent / "results" / "paper"
    results = Results(folder)
    images = data.load("mnist")
    first, last = images.subset(np.arange(PART)), images.subset(np.arange(len(images) - PART, len(images)))
    for cell in cells_of("joint", SCALE):
        subject = cell.subjects[0]
        record = results.find(model_subject(subject.recipe, subject.data))
        if record is None:
            raise SystemExit(f"{cell.name} has no model yet: whatwhere reproduce joint --scale paper")
        model = load(folder / "models" / f"{record['key']}.safetensors")
        recipe = replace(subject.recipe, batch_size=1000)
        x, x_last = (describe_images(model, part, recipe) for part in (first, last))

        def error(rows: np.ndarray) -> float:
            return protocol.evaluate(x[rows], first.labels[rows], x_last, last.labels, C, solver="newton").error

        errors = {PART: [error(np.arange(PART))]}
        for count in (1000, 300):
            errors[count] = [error(few_labels(first.labels, count, seed)) for seed in range(DRAWS)]
        yield {"cell": cell.name, "errors": errors, "mean": {count: fmean(found) for count, found in errors.items()}}


def sparsity() -> Iterator[dict[str, Any]]:
    """The last epoch of small trainings: 2,000 images, 10 + 10 epochs of 50 steps."""
    images = data.load("mnist").subset(np.arange(2000))
    for pooling, lam in (("gaussian", 0.5), ("max", 0.5), ("max", 1.0), ("gaussian", 0.25), ("max", 2.0)):
        changes = {
            "batch_size": 500,
            "model": {"layers": {"each": {"pooling": pooling}}},
            "learning": {
                "each": {"epochs": 10, "reset_at": [5], "inference": {"steps": 50}},
                "2": {"inference": {"lam": lam}},
            },
        }
        history = [epoch for epoch in train(amend(SCALE.recipe({}), changes), images).history if epoch.layer == 2]
        squared = [2 * epoch.reconstruction / lam for epoch in history]
        yield {
            "pooling": pooling,
            "lam": lam,
            "nonzeros": history[-1].nonzeros,
            "squared_error": squared[-1],
            "cost": history[-1].cost,
            "epochs": [[epoch.nonzeros, error] for epoch, error in zip(history, squared, strict=True)],
        }


TRIALS = {"phases": phases, "sparsity": sparsity}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="+", choices=TRIALS)
    for name in parser.parse_args().trials:
        found = []
        for row in TRIALS[name]():
            found.append(row)
            print({key: value for key, value in row.items() if key not in ("errors", "epochs")}, flush=True)
            out = HERE / "results" / f"why_{name}.json"
            out.write_text(json.dumps({"machine": machine(), "found": found}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
