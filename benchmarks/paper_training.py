"""What came of the paper's whole training: its time, and its model through a fast engine and through the reference.

    whatwhere reproduce pooling --scale paper --only "Gaussian pooling / Layer 2"      # trains it, on a GPU
    python benchmarks/paper_training.py --out benchmarks/results/gpu_training.json

Told from the result file: seconds of training and the filter updates' share of them. Measured: seconds for the features
of the test images; after 50 steps, cost and features beside the float64 reference; and the test error by the linear
SVM, once with all features through the fast engine and once through the reference, with the same C.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whatwhere.benchmark.machine import machine
from whatwhere.classification import describe_images, protocol
from whatwhere.data import Images
from whatwhere.inference import infer
from whatwhere.model import DeconvNet, load
from whatwhere.reproduction.results import Results
from whatwhere.reproduction.scales import SCALES, read_scale
from whatwhere.reproduction.subjects import model_subject
from whatwhere.reproduction.tables import cells_of
from whatwhere.spec import Recipe

COMPARED = 500  # images that are inferred in float64 too
REPEATS = 3


def training_times(record: dict[str, Any]) -> dict[str, Any]:
    """Sums over the history of both layers."""
    history = record["found"]["history"]
    seconds, filters = (sum(epoch[name] for epoch in history) for name in ("seconds", "filter_seconds"))
    return {
        "training_seconds": seconds,
        "filter_seconds": filters,
        "filter_share": filters / seconds,
        "epochs": len(history),
        "images": history[-1]["images"],
        "engines": sorted({epoch["engine"] for epoch in history}),
        "trained_on": record["machine"],
    }


def timed_features(model: DeconvNet, images: Tensor, recipe: Recipe) -> list[float]:
    """Seconds for the features of all images; the first may compile."""
    seconds = []
    for _ in range(REPEATS):
        since = time.perf_counter()
        float(infer(model, images, recipe.inference, batch_size=len(images)).features.sum())  # waits for the device
        seconds.append(time.perf_counter() - since)
    return seconds


def agreement(model: DeconvNet, images: Tensor, recipe: Recipe) -> dict[str, dict[str, float]]:
    """Cost and features of every engine relative to the reference in float64."""
    truth = infer(model.to(torch.float64), images.double(), recipe.inference, engine="reference")
    cost, found = truth.stats.cost[-1].mean(), {}
    for engine in ("auto", "reference"):
        solution = infer(model, images, recipe.inference, engine=engine)
        missed = (solution.features.double() - truth.features).norm() / truth.features.norm()
        found[solution.engine] = {
            "cost": float(solution.stats.cost[-1].double().mean() / cost - 1),
            "features": float(missed),
        }
    return found


def test_errors(model: DeconvNet, training: Images, test: Images, recipe: Recipe, C: float) -> dict[str, Any]:
    """The test error with features through the fast engine, and through the reference."""
    found = {}
    for engine in ("auto", "reference"):
        since = time.perf_counter()
        x, x_test = (describe_images(model, part, recipe, engine=engine, on_device=True) for part in (training, test))
        score = protocol.evaluate(x, training.labels, x_test, test.labels, C, device=model.device)
        found[engine] = {"errors": score.errors, "images": score.images, "percent": 100 * score.error, "C": C}
        found[engine]["seconds"] = time.perf_counter() - since
        print(engine, found[engine], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="paper")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    scale = read_scale(arguments.scale)
    results = Results(Path("results") / scale.name)
    (cell,) = (cell for cell in cells_of("pooling", scale) if cell.name == "Gaussian pooling / Layer 2")
    subject = cell.subjects[0]
    error, record = results.find(subject), results.find(model_subject(subject.recipe, subject.data))
    if error is None or record is None:
        parser.error(f"{cell.name} has no result yet; see above how to measure it")
    model = load(results.folder / "models" / f"{record['key']}.safetensors").to(arguments.device)
    training, test = subject.data.load()
    images, recipe = test[:].to(arguments.device), subject.recipe

    found: dict[str, Any] = {"benchmark": "the paper's training", "machine": machine(), **training_times(record)}
    found |= {"feature_seconds": timed_features(model, images, recipe), "feature_images": len(images)}
    found["agreement"] = agreement(model, images[:COMPARED], recipe)
    print(json.dumps(found, indent=1), flush=True)
    found["test_errors"] = test_errors(model, training, test, recipe, error["found"]["C"])
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
