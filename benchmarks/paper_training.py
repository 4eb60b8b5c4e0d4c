"""The paper's whole training, and what comes of the model through a fast engine and through the reference.

    python benchmarks/paper_training.py --out benchmarks/results/gpu_training.json            # all of MNIST, on a GPU
    python benchmarks/paper_training.py --source digits --limit 500 --epochs 1 --device cpu   # a trial

Measured: seconds of training and the filter updates' share of them; seconds for the features of the test images; after
50 steps, cost and features beside the float64 reference; and the test error of layer 2 by a linear SVM, once with all
features through the fast engine and once through the reference, with the same C (chosen on validation images).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere import data
from whatwhere.classification import describe_images, protocol
from whatwhere.experiments.machine import machine
from whatwhere.inference import infer
from whatwhere.learning import BatchReport, EpochReport, train
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe

COMPARED = 500  # images that are inferred in float64 too
REPEATS = 3


def timed_training(recipe: Recipe, images: Tensor, device: str) -> tuple[DeconvNet, dict[str, Any]]:
    """Train; the filters are updated between an epoch's last batch and its report."""
    epochs: list[dict[str, Any]] = []
    last_batch = 0.0

    def on_batch(report: BatchReport) -> None:
        nonlocal last_batch
        last_batch = time.perf_counter()

    def on_epoch(report: EpochReport) -> None:
        row = {name: getattr(report, name) for name in ("layer", "epoch", "seconds", "cost", "nonzeros", "engine")}
        epochs.append({**row, "filter_seconds": time.perf_counter() - last_batch})
        if report.epoch % 10 in (0, 1):
            print(epochs[-1], flush=True)

    since = time.perf_counter()
    trained = train(recipe, images, device=device, on_batch=on_batch, on_epoch=on_epoch)
    seconds = time.perf_counter() - since
    filters = sum(row["filter_seconds"] for row in epochs)
    return trained.model, {
        "training_seconds": seconds,
        "filter_seconds": filters,
        "filter_share": filters / seconds,
        "images": len(images),
        "epochs": epochs,
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


def test_errors(model: DeconvNet, training: data.Images, test: data.Images, recipe: Recipe) -> dict[str, Any]:
    """The test error with features through the fast engine, and through the reference."""
    C, found = None, {}
    for engine in ("auto", "reference"):
        since = time.perf_counter()
        x, x_test = (describe_images(model, part, recipe, engine=engine, on_device=True) for part in (training, test))
        if C is None:
            C = protocol.choose({"": x}, training.labels, device=model.device)[0].C
        score = protocol.evaluate(x, training.labels, x_test, test.labels, C, device=model.device)
        found[engine] = {"errors": score.errors, "images": score.images, "percent": 100 * score.error, "C": C}
        found[engine]["seconds"] = time.perf_counter() - since
        print(engine, found[engine], flush=True)
    return found


def first(images: data.Images, limit: int | None) -> data.Images:
    return images.subset(np.arange(min(limit or len(images), len(images))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="mnist")
    parser.add_argument("--limit", type=int, help="take only the first images")
    parser.add_argument("--epochs", type=int, help="of each layer; the paper's 50 otherwise")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    recipe = replace(Recipe.paper(), batch_size=6000)
    if arguments.epochs:
        recipe = replace(recipe, learning=tuple(replace(spec, epochs=arguments.epochs) for spec in recipe.learning))
    training, test = (first(data.load(arguments.source, split=split), arguments.limit) for split in ("train", "test"))
    images, test_images = training[:].to(arguments.device), test[:].to(arguments.device)
    found: dict[str, Any] = {"benchmark": "the paper's training", "machine": machine()}

    def keep(**results: Any) -> None:
        found.update(results)
        if arguments.out:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")

    model, training_times = timed_training(recipe, images, arguments.device)
    keep(**training_times)
    print({name: training_times[name] for name in ("training_seconds", "filter_seconds", "filter_share")}, flush=True)
    keep(feature_seconds=timed_features(model, test_images, recipe), feature_images=len(test))
    keep(agreement=agreement(model, test_images[:COMPARED], recipe))
    print(found["feature_seconds"], found["agreement"], flush=True)
    keep(test_errors=test_errors(model, training, test, recipe))


if __name__ == "__main__":
    main()
