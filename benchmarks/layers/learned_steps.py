"""K learned steps on MNIST: the cost that they reach on the test images, and the error of an SVM on
their features.

    PYTHONPATH=src python3 -m benchmarks.layers.learned_steps --cells 5:0 3:0 10:0 5:1 5:2 --cache
    FOLDER

A cell K:SEED learns K steps for the model `gaussian-2layers-seedSEED` of the reproduction from the
first 50,000 training images, measures their cost on the 10,000 test images, and tests once a linear
SVM that was fitted to all 60,000. If several C are given, the last 10,000 of them choose it. Every
part of a cell is written to the JSON file, the descriptors to the folder of --cache, as soon as it
is there: the same command continues where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.classification import describe_images, protocol
from whatwhere.data import Images
from whatwhere.inference import UnrolledInference, distill
from whatwhere.model import DeconvNet
from whatwhere.spec import DistillSpec, InferenceSpec

PART = 5000  # images that are described at a time


def learn(
    model: DeconvNet, images: Images, steps: int, seed: int, given: argparse.Namespace
) -> dict[str, Any]:
    """The steps, by `distill`."""
    fitting = images.subset(np.arange(len(images) * 5 // 6))
    unrolled, began = UnrolledInference(model, steps, untied=not given.tied), time.process_time()
    names = ("batches", "batch_size", "imitation")
    settings = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    distill(unrolled, fitting, DistillSpec(**settings, seed=given.seed))
    learned = unrolled.learned
    ww.save(model.to("cpu"), steps_of(given, steps, seed))
    learned.save(steps_of(given, steps, seed))
    seconds = time.process_time() - began
    return {
        "untied": not given.tied,
        **settings,
        "learning_seconds": seconds,
        "spec": asdict(learned.spec),
    }


def steps_of(given: argparse.Namespace, steps: int, seed: int) -> Path:
    """The file of a model whose learned steps are those of the cell: they lie next to it."""
    folder: Path = given.cache / f"{given.loss}-{steps}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "model.safetensors"


def measure(model: DeconvNet, images: Images, spec: InferenceSpec) -> dict[str, float]:
    """Mean cost and number of features that are not 0 after the last step."""
    stats = ww.infer(model, images, spec).stats
    return {
        "cost": float(stats.cost[-1].double().mean()),
        "nonzeros": float(stats.nonzeros[-1].float().mean()),
    }


def measure_other(
    model: DeconvNet, learned: ww.LearnedSteps, digits: torch.Tensor
) -> dict[str, Any]:
    """The cost on digits of other contrasts and on Fashion-MNIST, and how many images took plain
    steps instead."""
    sets = {f"contrast {scale}": scale * digits for scale in (0.25, 0.5, 1.0, 2.0, 4.0)}
    sets["fashion-mnist"] = ww.data.load("fashion-mnist", split="test")[slice(0, len(digits))]
    found = {}
    for name, images in sets.items():
        stats = ww.infer(model, images, learned.spec).stats
        sizes = torch.tensor([step.size for step in learned.spec.schedule.steps])[:, None].to(
            stats.step
        )
        instead = ((stats.step - sizes).abs() > 1e-6 * sizes).any(0)
        found[name] = {
            "cost": float(stats.cost[-1].double().mean()),
            "plain_instead": int(instead.sum()),
        }
    return {"other": found, "other_images": len(digits)}


def described(
    model: DeconvNet, images: Images, spec: InferenceSpec, files: Path
) -> Iterator[np.ndarray]:
    """The descriptors, part by part, each as a file once it is there."""
    recipe = replace(ww.Recipe.paper(model.spec), inference=spec)
    for begin in range(0, len(images), PART):
        file = files.with_name(f"{files.name}-{begin}.npy")
        if not file.exists():
            rows = np.arange(begin, min(begin + PART, len(images)))
            # sparse if few of its numbers are not 0
            found = describe_images(model, images.subset(rows), recipe)
            np.save(file, found if isinstance(found, np.ndarray) else found.toarray())
        yield np.load(file)


def classify(
    rows: list[np.ndarray], training: Images, test: Images, grid: list[float]
) -> Iterator[dict[str, Any]]:
    """C on the last sixth of the training images, where several are given; then one test."""
    assert training.labels is not None
    assert test.labels is not None
    fit, best = len(training) * 5 // 6, grid[0]
    x, x_test = torch.from_numpy(rows[0]), torch.from_numpy(rows[1])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if len(grid) > 1:
        fold = np.where(np.arange(len(training)) < fit, 1, 0)
        chosen, trials = protocol.choose(
            x, training.labels, grid=grid, validation=[fold == 0], device=device
        )
        best = chosen.C
        yield {"trials": [asdict(trial) for trial in trials]}
    score = protocol.evaluate(x, training.labels, x_test, test.labels, best, device=device)
    yield {"C": best, "errors": score.errors, "error": score.error, "interval": score.interval}


def run_cell(
    steps: int, seed: int, given: argparse.Namespace, cell: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """What is still missing of a cell, part by part."""
    training, test = ww.data.load("mnist"), ww.data.load("mnist", split="test")
    if given.images:
        training, test = (
            each.subset(np.arange(min(given.images, len(each)))) for each in (training, test)
        )
    model = ww.load(given.models / f"gaussian-2layers-seed{seed}.safetensors")
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    if "spec" not in cell:
        yield learn(model, training, steps, seed, given)
    learned = ww.LearnedSteps.load(steps_of(given, steps, seed))
    model, spec = learned.model_for(model), learned.spec
    if "cost" not in cell:
        yield measure(model, test, spec)
    if given.other and "other" not in cell:
        yield measure_other(model, learned, test[slice(0, given.other)])
    if "error" in cell or not given.C:
        return
    rows = []
    for split, images in (("train", training), ("test", test)):
        parts = []
        for part in described(model, images, spec, steps_of(given, steps, seed).with_name(split)):
            parts.append(part)
            yield {}
        rows.append(np.concatenate(parts))
    yield from classify(rows, training, test, given.C)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells", nargs="+", default=["5:0", "3:0", "10:0", "5:1", "5:2"], metavar="K:SEED"
    )
    parser.add_argument(
        "--loss", default="default", help="name of the settings of `distill` in the result"
    )
    parser.add_argument("--tied", action="store_true", help="only the sizes are learned")
    parser.add_argument("--batches", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--imitation", type=float)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the images that `distill` learns from"
    )
    parser.add_argument(
        "--C", type=float, nargs="*", default=[10.0, 30.0, 100.0], help="none: the cost alone"
    )
    parser.add_argument(
        "--other", type=int, default=0, help="test images at other contrasts, and of Fashion-MNIST"
    )
    parser.add_argument("--images", type=int, help="of each set, for a short trial")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no further part after this time"
    )
    parser.add_argument(
        "--models", type=Path, required=True, help="where results/paper/models.zip is unpacked"
    )
    parser.add_argument("--cache", type=Path, default=Path("learned_steps_cache"))
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/layers/results/learned_steps.json")
    )
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    found: dict[str, Any] = (
        json.loads(given.out.read_text()) if given.out.exists() else {"cells": {}}
    )
    for name in given.cells:
        steps, seed = map(int, name.split(":"))
        cell = found["cells"].setdefault(
            f"{given.loss}, K = {steps}, seed {seed}", {"machine": machine()}
        )
        for part in run_cell(steps, seed, given, cell):
            cell |= part
            if part:
                print(
                    name, {key: value for key, value in part.items() if key != "spec"}, flush=True
                )
                given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            if time.monotonic() - began > given.seconds:
                return print("stopped; the same command continues")


if __name__ == "__main__":
    main()
