"""The paper's complete training: its time, and its model through a fast engine and through the
reference.

    python -m reproduction pooling --scale paper --only "Gaussian pooling / Layer 2"      # trains
    it, on a GPU python -m reproduction.studies.paper_training --out
    benchmarks/speed/results/gpu_training.json

From the result file: seconds of training and the filter updates' share of them. Measured: seconds
for the features of the test images; after 50 steps, cost and features against the float64
reference; and the test error by the linear SVM, once with all features through the fast engine and
once through the reference, with the same C, and by how much the images were decided that only one
of them gets wrong.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import machine
from reproduction.jobs import EvaluationJob, ModelFeatures, TrainingJob
from reproduction.records import Record
from reproduction.reproduce import RESULTS, open_store
from reproduction.results import TrainingResult
from reproduction.scale import SCALES, read_scale
from reproduction.table import cells_of
from whatwhere import DeconvNet, load
from whatwhere.classification import describe_images, fit_svm, protocol
from whatwhere.data import Images
from whatwhere.inference import infer
from whatwhere.spec import Recipe

COMPARED = 500  # images that are inferred in float64 too
REPEATS = 3


def training_times(record: Record[TrainingResult]) -> dict[str, Any]:
    """Sums over the history of both layers."""
    history = record.result.history
    seconds, filters = (
        sum(epoch.seconds for epoch in history),
        sum(epoch.filter_seconds or 0 for epoch in history),
    )
    return {
        "training_seconds": seconds,
        "filter_seconds": filters,
        "filter_share": filters / seconds,
        "epochs": len(history),
        "images": history[-1].images,
        "engines": sorted({epoch.engine for epoch in history}),
        "trained_on": record.machine,
    }


def timed_features(model: DeconvNet, images: Tensor, recipe: Recipe) -> list[float]:
    """Seconds for the features of all images; the first may compile."""
    seconds = []
    for _ in range(REPEATS):
        since = time.perf_counter()
        # waits for the device
        float(infer(model, images, recipe.inference, batch_size=len(images)).features.sum())
        seconds.append(time.perf_counter() - since)
    return seconds


def agreement(model: DeconvNet, images: Tensor, recipe: Recipe) -> dict[str, dict[str, float]]:
    """Cost and features of every engine relative to the reference in float64."""
    truth = infer(model.to(torch.float64), images.double(), recipe.inference, engine="reference")
    cost, errors = truth.stats.cost[-1].mean(), {}
    for engine in ("auto", "reference"):
        solution = infer(model, images, recipe.inference, engine=engine)
        missed = (solution.features.double() - truth.features).norm() / truth.features.norm()
        errors[solution.engine] = {
            "cost": float(solution.stats.cost[-1].double().mean() / cost - 1),
            "features": float(missed),
        }
    return errors


def test_errors(
    model: DeconvNet, training: Images, test: Images, recipe: Recipe, C: float
) -> dict[str, Any]:
    """The test error with features through the fast engine, and through the reference."""
    errors: dict[str, Any] = {}
    decisions: dict[str, np.ndarray] = {}
    for engine in ("auto", "reference"):
        since = time.perf_counter()
        x, x_test = (
            describe_images(model, part, recipe, engine=engine, on_device=True)
            for part in (training, test)
        )
        svm = fit_svm(x, training.labels, C, device=model.device)
        decisions[engine] = svm.decision(x_test)
        predicted = svm.classes[decisions[engine].argmax(1)]
        score = protocol.score_predictions(predicted, test.labels, svm.classes, C=C)
        errors[engine] = {
            "errors": score.errors,
            "images": score.images,
            "percent": 100 * score.error,
            "C": C,
        }
        errors[engine]["seconds"] = time.perf_counter() - since
        print(engine, errors[engine], flush=True)
    errors["differ"] = differing(decisions, svm.classes, test.labels)
    print(errors["differ"], flush=True)
    return errors


def differing(
    decisions: dict[str, np.ndarray], classes: np.ndarray, labels: np.ndarray
) -> list[dict[str, Any]]:
    """The images that two engines assign to different classes: which, and by how much more than
    the next class."""
    assigned = {engine: decision.argmax(1) for engine, decision in decisions.items()}
    first, second = assigned.values()
    margins = {
        engine: np.diff(np.sort(decision)[:, -2:])[:, 0] for engine, decision in decisions.items()
    }
    rows = []
    for i in np.flatnonzero(first != second):
        row: dict[str, Any] = {"image": int(i), "label": int(labels[i])}
        for engine in decisions:
            row[engine] = {
                "class": int(classes[assigned[engine][i]]),
                "margin": float(margins[engine][i]),
            }
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=SCALES, default="paper")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    scale = read_scale(arguments.scale)
    store = open_store(RESULTS, scale)
    (cell,) = (
        cell for cell in cells_of("pooling", scale) if cell.name == "Gaussian pooling / Layer 2"
    )
    job = cell.jobs[0]
    assert isinstance(job, EvaluationJob)
    assert isinstance(job.features, ModelFeatures)
    recipe = job.features.recipe
    evaluated, trained = store.find(job), store.find(TrainingJob(job.data, recipe))
    if evaluated is None or trained is None:
        parser.error(f"{cell.name} has no result yet; see above how to measure it")
    model = load(store.folder / f"{trained.name}.safetensors").to(arguments.device)
    training, test = job.data.load()
    images = test[:].to(arguments.device)

    measured: dict[str, Any] = {
        "benchmark": "the paper's training",
        "machine": machine(),
        **training_times(trained),
    }
    measured |= {
        "feature_seconds": timed_features(model, images, recipe),
        "feature_images": len(images),
    }
    measured["agreement"] = agreement(model, images[:COMPARED], recipe)
    print(json.dumps(measured, indent=1), flush=True)
    measured["test_errors"] = test_errors(model, training, test, recipe, evaluated.result.score.C)
    if arguments.out:
        arguments.out.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
