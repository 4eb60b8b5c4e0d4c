"""Regions that overlap, and several maps pooled together: the error on validation images, and the
speed of inference.

    PYTHONPATH=src python3 -m benchmarks.learning.pooling_regions error --model overlapping --data
    FOLDER
    --out FOLDER PYTHONPATH=src python3 -m benchmarks.learning.pooling_regions speed --out FOLDER

`error` learns a model in a stream from the first 50,000 training images of MNIST (FOLDER of --data
holds the IDX files) and gives its error on the last 10,000, C chosen on them; it writes the model
and a JSON file. `speed` takes the models that are there and times every engine with every rule of
the step size on one device, with the cost that each ends with.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import whatwhere as ww
from benchmarks.learning.streaming_gpu import C_GRID, read, streaming_recipe
from benchmarks.machine import machine
from whatwhere import override
from whatwhere.classification import describe_images, protocol
from whatwhere.data import load
from whatwhere.engines import ENGINES
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import (
    EveryEpoch,
    InferenceSpec,
    LayerSpec,
    LineSearch,
    ModelSpec,
    Phase,
    Power,
    Recipe,
)

OVERLAPPING = {"pool_size": 3, "pool_stride": 2}
MODELS = {  # layers
    "tiled": (LayerSpec(maps=16), LayerSpec(maps=48, fan_in=8)),
    "overlapping": (LayerSpec(maps=16, **OVERLAPPING), LayerSpec(maps=48, fan_in=8, **OVERLAPPING)),
    "3-D": (LayerSpec(maps=16, pool_maps=2), LayerSpec(maps=48, fan_in=8, pool_maps=2)),
    "3-D, twice the maps": (
        LayerSpec(maps=32, pool_maps=2),
        LayerSpec(maps=96, fan_in=8, pool_maps=2),
    ),
}
JOINT = Phase(layer=2, update_pooling=(1, 2))
RULES = {
    "batch step, α ½": InferenceSpec(
        lam=0.5, penalty=Power(alpha=0.5), step=LineSearch(per="batch")
    ),
    "image step, α 1": InferenceSpec(),
    "image step, α ½": InferenceSpec(penalty=Power(alpha=0.5)),
}
MEASURED_BY_REFERENCE = ("batch step, α ½", "image step, α 1")
STEPS = {"reference": 5}  # of the others 50


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def file_name(model: str) -> str:
    return model.replace(", ", "_").replace(" ", "_")


def error(name: str, data: Path, out: Path, images: int, held_out: int, seed: int) -> None:
    """Train in a stream, then the error on the images held out."""
    pixels, labels = read(data, "train")
    pixels, labels = pixels[-images:], labels[-images:]
    device, cut = "cuda" if torch.cuda.is_available() else "cpu", images - held_out
    recipe = streaming_recipe(50, 0.5, min(1000, cut), 1, seed)
    recipe = replace(recipe, model=ModelSpec(layers=MODELS[name]))
    begun = time.perf_counter()
    model = train(pixels[:cut], recipe, options=TrainingOptions(device=device)).model
    row: dict[str, Any] = {
        "model": name,
        "seed": seed,
        "training_seconds": round(time.perf_counter() - begun, 2),
    }
    ww.save(model, out / f"pooling_regions_{file_name(name)}_{seed}.safetensors")
    fold = np.where(np.arange(images) < cut, 1, 0)
    x = describe_images(model, pixels, replace(recipe, batch_size=6000), on_device=device == "cuda")
    best, trials = protocol.choose(x, labels, grid=C_GRID, validation=[fold == 0], device=device)
    row["image"] = {"error": best.error, "C": best.C, "trials": [asdict(trial) for trial in trials]}
    print(name, seed, best.error, f"{time.perf_counter() - begun:.0f} s", flush=True)
    (out / f"pooling_regions_{file_name(name)}_{seed}.json").write_text(json.dumps(row, indent=1))


def brief_model(name: str) -> DeconvNet:
    """A model after a short training on 100 digits, so that its features are sparse."""
    brief = {
        "batch_size": 100,
        "learning": {
            "each": {"epochs": 3, "update": EveryEpoch(reset_at=[]), "inference": {"steps": 20}}
        },
    }
    recipe = override(Recipe(model=ModelSpec(layers=MODELS[name])), brief)
    return train(load("digits", split="train")[slice(0, 100)], recipe).model


def speed(
    out: Path,
    device: torch.device,
    count: int,
    steps: int,
    repeats: int,
    engines: list[str],
    only: str,
) -> None:
    """Every model with every rule through every engine that supports it; every row is written as
    it is measured."""
    digits = load("digits", split="train")[slice(0, min(count, 5000))]
    v = digits.repeat(-(-count // len(digits)), 1, 1, 1)[:count].to(device)
    found: dict[str, Any] = {"machine": machine(), "images": count, "rows": []}
    for name in MODELS:
        if not any(only in f"{name}, {rule}" for rule in RULES):
            continue
        path = out / f"pooling_regions_{file_name(name)}_0.safetensors"
        if path.exists():
            model = ww.load(path).to(device)
        else:  # on a GPU, where speed depends little on the features, as it is
            model = (
                brief_model(name)
                if device.type == "cpu"
                else DeconvNet(ModelSpec(layers=MODELS[name])).to(device)
            )
        for rule, spec in RULES.items():
            for engine in engines:
                own = min(steps, STEPS.get(engine, steps))
                if only in f"{name}, {rule}" and (
                    engine != "reference" or rule in MEASURED_BY_REFERENCE
                ):
                    row = measure(engine, model, v, replace(spec, steps=own), repeats)
                    if row is not None:
                        found["rows"].append({"model": name, "rule": rule, **row})
                        print(found["rows"][-1], flush=True)
                        (out / f"pooling_regions_speed_{device.type}.json").write_text(
                            json.dumps(found, indent=1)
                        )


def measure(
    name: str, model: DeconvNet, v: Tensor, spec: InferenceSpec, repeats: int
) -> dict[str, Any] | None:
    """Image-iterations a second of fresh solves after two that compile and record; the mean cost
    at the end."""
    engine = ENGINES[name]
    if engine.unsupported_reason(Problem(model, v, JOINT, spec)) is not None:
        return None
    # of one thread: others may be at work
    seconds, clock = (
        [],
        time.perf_counter if v.is_cuda else time.process_time,
    )
    with torch.no_grad():
        warm = engine.solve(Problem(model, v, JOINT, spec))
        latents = warm.latents
        for i in range(repeats + 1):
            synchronise(v.device)
            begun = clock()
            engine.solve(Problem(model, v, JOINT, spec, latents))
            synchronise(v.device)
            seconds.append(clock() - begun) if i or repeats == 0 else None
    rates = [len(v) * spec.steps / s for s in seconds]
    return {
        "engine": name,
        "steps": spec.steps,
        "median": statistics.median(rates),
        "rates": rates,
        "cost": float(warm.stats.cost[-1].mean()),
        "nonzeros": float(warm.stats.nonzeros[-1].float().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["error", "speed"])
    parser.add_argument("--model", choices=MODELS, default="tiled")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=60000, help="with `speed`, of a batch")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="with `speed`"
    )
    parser.add_argument("--held-out", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=["triton", "cpu", "reference"]
    )
    parser.add_argument("--only", default="", help="part of the name of a model and a rule")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "error":
        error(given.model, given.data, given.out, given.images, given.held_out, given.seed)
    else:
        torch.set_num_threads(1)
        speed(
            given.out,
            torch.device(given.device),
            given.images,
            given.steps,
            given.repeats,
            given.engines,
            given.only,
        )


if __name__ == "__main__":
    main()
