"""Learning in a stream on a GPU: all of MNIST within 10 s, its test error, cost curves, and a
million images.

    PYTHONPATH=src python3 -m benchmarks.learning.streaming_gpu --data FOLDER --out FOLDER

FOLDER of --data holds MNIST's four IDX files (gzipped or not). Steps, each kept in
streaming_gpu.json as it ends; with the file of an earlier call in --out, what it holds is not
measured again:

    choice     settings of layer 2, by the error on the last 10,000 training images (trained on the
               first 50,000)
    seeds      three seeds with the best settings on all 60,000: seconds of training, test error (C
               chosen as above)
    curves     cost on 5,000 held-out training images against seconds and images, in a stream and by
               epochs
    million    1,000,000 shifted and distorted digits, made on the fly: memory, cost, seconds
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

import whatwhere as ww
from benchmarks.learning.learning_curve import curve, held_out_cost, record
from benchmarks.machine import machine
from whatwhere import override
from whatwhere.classification import describe_images, protocol
from whatwhere.learning import BatchReport, TrainingCallbacks, TrainingOptions, train
from whatwhere.model import DeconvNet
from whatwhere.spec import EveryBatch, EveryEpoch, LineSearch, Recipe

NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
C_GRID = (10.0, 30.0, 100.0)
# (steps, λ of layer 2, batch size, passes of layer 2, passes of layer 1)
CANDIDATES = [  # each takes at most 10 s for 60,000 images
    (50, 2.0, 1000, 2, 2),
    (50, 1.0, 2000, 3, 2),
    (50, 1.0, 1000, 2, 2),
    (50, 2.0, 2000, 3, 2),
    (50, 2.0, 1000, 2, 1),
    (50, 0.5, 1000, 1, 1),
    (50, 0.5, 1000, 3, 1),
    (50, 0.5, 1000, 2, 2),
    (50, 0.2, 1000, 2, 2),
    (100, 0.5, 1000, 1, 1),
    (50, 0.5, 500, 2, 1),
]
CHOICE_SEEDS = (0, 1)


def streaming_recipe(
    steps: int, lam: float, batch_size: int, passes: int, first_passes: int, seed: int = 0
) -> Recipe:
    layer = {"update": EveryBatch(), "epochs": 1, "cg_steps": 1}
    inference = {"steps": steps, "step": LineSearch()}
    return override(
        Recipe.paper(),
        {
            "batch_size": batch_size,
            "seed": seed,
            "learning": {
                "1": {**layer, "epochs": first_passes, "inference": inference},
                "2": {**layer, "epochs": passes, "inference": {**inference, "lam": lam}},
            },
        },
    )


def read(folder: Path, split: str) -> tuple[Tensor, np.ndarray]:
    """Pixels [N, 1, 28, 28] in [0, 1], and labels."""
    paths = []
    for name in NAMES[split]:
        path = next((p for p in (folder / f"{name}.gz", folder / name) if p.exists()), None)
        if path is None:
            raise SystemExit(f"{folder} holds neither {name}.gz nor {name}")
        paths.append(path)
    images = ww.data.load(*paths)
    assert images.labels is not None
    return images[:], images.labels


def timed_training(recipe: Recipe, images: Tensor, device: str) -> tuple[DeconvNet, dict[str, Any]]:
    start = time.perf_counter()
    done = train(images, recipe, options=TrainingOptions(device=device))
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return done.model, {
        "training_seconds": round(seconds, 3),
        "history": [asdict(report) for report in done.history],
    }


def describe(model: DeconvNet, images: Tensor, recipe: Recipe, device: str) -> Any:
    return describe_images(
        model, images, replace(recipe, batch_size=6000), on_device=device == "cuda"
    )


def choose_settings(
    pixels: Tensor,
    labels: np.ndarray,
    held_out: int,
    device: str,
    seconds: float,
    rows: list[dict[str, Any]],
    keep: Any,
) -> None:
    """Every candidate, trained on the first images, its error on the last ones; adds to rows until
    time is up."""
    cut, began = len(pixels) - held_out, time.monotonic()
    fold = np.where(np.arange(len(labels)) < cut, 1, 0)
    for candidate in CANDIDATES:
        for seed in CHOICE_SEEDS:
            known = any(
                tuple(row["candidate"]) == candidate and row["seed"] == seed for row in rows
            )
            if known or time.monotonic() - began > seconds:
                continue
            recipe = streaming_recipe(*candidate, seed=seed)
            timed_training(recipe, pixels[: 2 * recipe.batch_size], device)  # compiles, not counted
            model, row = timed_training(recipe, pixels[:cut], device)
            x = describe(model, pixels, recipe, device)
            best, trials = protocol.choose(
                x, labels, grid=C_GRID, validation=[fold == 0], device=device
            )
            row |= {"candidate": candidate, "seed": seed, "C": best.C, "error": best.error}
            rows.append(row | {"trials": [asdict(t) for t in trials]})
            print(
                candidate,
                seed,
                row["training_seconds"],
                best.error,
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
            keep(rows)


def best_candidate(rows: list[dict[str, Any]]) -> tuple[tuple[Any, ...], float]:
    """The candidate with the lowest mean error over all seeds, and its C."""
    by_candidate: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        by_candidate.setdefault(tuple(row["candidate"]), []).append(row)
    named = [
        (name, by_candidate[name])
        for name in CANDIDATES
        if len(by_candidate.get(name, ())) == len(CHOICE_SEEDS)
    ]
    candidate, found = min(
        named, key=lambda item: float(np.mean([row["error"] for row in item[1]]))
    )
    mean = {
        C: np.mean([t["error"] for row in found for t in row["trials"] if t["C"] == C])
        for C in C_GRID
    }
    return candidate, min(mean, key=lambda C: mean[C])


def measure_seeds(
    candidate: tuple[Any, ...],
    C: float,
    training: Any,
    test: Any,
    seeds: int,
    device: str,
    keep: Any,
) -> list[dict[str, Any]]:
    """Trained on all training images; the test images are used once for each seed."""
    rows = []
    for seed in range(seeds):
        recipe = streaming_recipe(*candidate, seed=seed)
        # compiles, not counted
        timed_training(recipe, training[0][: 2 * recipe.batch_size], device)
        model, row = timed_training(recipe, training[0], device)
        x, x_test = (describe(model, images, recipe, device) for images in (training[0], test[0]))
        score = protocol.evaluate(x, training[1], x_test, test[1], C, device=device)
        row |= {"seed": seed, "C": C, "error": score.error, "errors": score.errors}
        rows.append(row)
        print("seed", seed, row["training_seconds"], score.error, flush=True)
        keep(rows)
    return rows


def curves(
    candidate: tuple[Any, ...], pixels: Tensor, held_out: int, epochs: int, device: str
) -> dict[str, Any]:
    """Both ways from the same images, evaluated by the paper's λ on images that neither
    has seen."""
    training, kept_back = pixels[:-held_out], pixels[-held_out:]
    by_epoch = override(
        Recipe.paper(),
        {
            "batch_size": 5500,
            "learning": {"each": {"epochs": epochs, "update": EveryEpoch(reset_at=[])}},
        },
    )
    judged = (
        replace(k, inference=replace(k.inference, step=LineSearch())) for k in by_epoch.learning
    )
    judge = replace(by_epoch, learning=tuple(judged))
    streaming = streaming_recipe(*candidate)
    found = {}
    for name, recipe in (("stream", streaming), ("epochs", by_epoch)):
        once = replace(
            recipe, learning=tuple(replace(layer, epochs=1) for layer in recipe.learning)
        )
        record(once, training[: recipe.batch_size], device=device)  # compiles, not counted
        found[name] = curve(record(recipe, training, device=device, every=5), judge, kept_back)
        print(name, found[name][-1], flush=True)
    return found


def distorted(pixels: Tensor, batch: int, seed: int, device: str) -> Iterator[Tensor]:
    """Endless digits, each turned, sheared, scaled and shifted at random."""
    generator = torch.Generator(device).manual_seed(seed)
    pixels = pixels.to(device)

    def uniform(span: float) -> Tensor:
        return (2 * torch.rand(batch, generator=generator, device=device) - 1) * span

    while True:
        v = pixels[torch.randint(len(pixels), (batch,), generator=generator, device=device)]
        angle, scale, shear = uniform(0.2), 1 + uniform(0.1), uniform(0.15)
        cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
        first = torch.stack([cos, -sin + shear, uniform(2 * 2 / 28)], 1)
        second = torch.stack([sin, cos, uniform(2 * 2 / 28)], 1)
        grid = affine_grid(torch.stack([first, second], 1), list(v.shape), align_corners=False)
        yield grid_sample(v, grid, align_corners=False).clamp(0, 1)


def million(
    candidate: tuple[Any, ...], pixels: Tensor, count: int, held_out: int, device: str
) -> dict[str, Any]:
    """One pass over `count` images, half of them for each layer; memory after every hundredth of
    it."""
    recipe = streaming_recipe(min(candidate[0], 50), *candidate[1:])
    memory, start, seen = [], time.perf_counter(), 0

    def watch(report: BatchReport) -> None:
        nonlocal seen
        seen += report.images
        if seen // (count // 100) > len(memory):
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            memory.append(
                {
                    "layer": report.layer,
                    "images": seen,
                    "seconds": round(time.perf_counter() - start, 2),
                    "batch_cost": report.reconstruction + report.penalty,
                    "resident_bytes": resident,
                    "device_bytes": torch.cuda.memory_allocated() if device == "cuda" else 0,
                }
            )

    stream = distorted(pixels[:-held_out], recipe.batch_size, 0, device)
    options, callbacks = TrainingOptions(device=device), TrainingCallbacks(on_batch=watch)
    done = train(stream, recipe, image_count=count // 2, options=options, callbacks=callbacks)
    judged = [held_out_cost(done.model, k, recipe, pixels[-held_out:]) for k in (1, 2)]
    return {
        "images": count,
        "steps": recipe.learning[0].inference.steps,
        "seconds": round(time.perf_counter() - start, 2),
        "curve": memory,
        "held_out": judged,
        "dead_maps": [report.dead_maps for report in done.history],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--tiny", action="store_true", help="a few images and steps, to test this script on a CPU"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=["choice", "seeds", "million", "curves"],
        help="steps to measure",
    )
    parser.add_argument(
        "--seconds", type=float, default=440.0, help="no step begins after this many"
    )
    given = parser.parse_args()
    began, device = time.monotonic(), "cuda" if torch.cuda.is_available() else "cpu"
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "streaming_gpu.json"
    results: dict[str, Any] = (
        json.loads(file.read_text()) if file.exists() else {"machine": machine()}
    )
    training, test = read(given.data, "train"), read(given.data, "test")
    held_out, curve_held_out, seeds, epochs, count = 10_000, 5_000, 3, 10, 1_000_000
    if given.tiny:
        CANDIDATES[:] = [(3, 0.5, 40, 1, 1), (2, 2.0, 40, 1, 2)]
        training, test = tuple(part[:240] for part in training), tuple(part[:40] for part in test)  # type: ignore[assignment]
        held_out, curve_held_out, seeds, epochs, count = 40, 40, 2, 1, 400

    def keep(name: str) -> Any:
        def write(found: Any) -> None:
            results[name] = found
            file.write_text(json.dumps(results, indent=1) + "\n")

        return write

    def missing(name: str, expected: int) -> bool:
        return (
            name in given.only
            and len(results.get(name, ())) < expected
            and time.monotonic() - began < given.seconds
        )

    rows = results.setdefault("choice", [])
    if "choice" in given.only:
        choose_settings(*training, held_out, device, given.seconds / 2, rows, keep("choice"))
    candidate, C = best_candidate(rows)
    keep("chosen")(candidate)
    if missing("seeds", seeds):
        measure_seeds(candidate, C, training, test, seeds, device, keep("seeds"))
    if missing("million", 1):
        keep("million")(million(candidate, training[0], count, curve_held_out, device))
    if missing("curves", 1):
        keep("curves")(curves(candidate, training[0], curve_held_out, epochs, device))
    errors = [row["error"] for row in results.get("seeds", ())]
    print(
        json.dumps(
            {
                "chosen": candidate,
                "errors": errors,
                "mean": float(np.mean(errors)) if errors else None,
            }
        )
    )


if __name__ == "__main__":
    main()
