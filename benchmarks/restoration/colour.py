"""Filters of a colour image: unit length per filter (all planes together, the rule of the model) or
per plane?

    python -m benchmarks.restoration.colour

Both are trained in the same way on crops of the upper halves of china.jpg and flower.jpg of
scikit-learn, and code crops of the lower halves at several λ. The measure is the PSNR of the
reconstruction at equal numbers of non-zeros, interpolated between the λ. Every call adds its result
to benchmarks/results/logs.json.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_image
from torch import Tensor

from benchmarks.log import Log
from benchmarks.machine import machine
from whatwhere.inference import infer
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet, deconvnet
from whatwhere.ops.filters import project_filters
from whatwhere.spec import (
    EveryEpoch,
    InferenceSpec,
    InputSpec,
    LayerSpec,
    LearningSpec,
    LineSearch,
    ModelSpec,
    Recipe,
)

RESULTS = Log("colour")
LAMBDAS = (2.0, 5.0, 10.0, 20.0, 50.0)
AT = (20.0, 40.0, 80.0)  # non-zeros in a hundred pixels


def crops(lower: bool, count: int, size: int, seed: int) -> Tensor:
    """Colour crops [count, 3, size, size] in [0, 1] of one half of both photographs."""
    rng, pieces = np.random.default_rng(seed), []
    for name in ("china.jpg", "flower.jpg"):
        picture = load_sample_image(name).astype(np.float32) / 255
        half = picture[len(picture) // 2 :] if lower else picture[: len(picture) // 2]
        for y, x in rng.integers(0, np.array(half.shape[:2]) - size, (count // 2, 2)):
            pieces.append(half[y : y + size, x : x + size].transpose(2, 0, 1))
    return torch.from_numpy(np.stack(pieces))


def per_plane(spec: ModelSpec, k: int, f: Tensor, connected: Tensor) -> Tensor:
    """Every plane of every filter has unit length."""
    return project_filters(f, connected, nonnegative=spec.nonnegative, normalise="plane")


def learned_model(rule: str, images: Tensor, epochs: int, lam: float) -> DeconvNet:
    inference = InferenceSpec(lam=lam, steps=15, step=LineSearch(momentum=True), pooling_step=1.0)
    layers, stage = (LayerSpec(maps=16, filter_size=7),), InputSpec(kind="highpass", sigma=4.0)
    spec = ModelSpec(layers=layers, channels=3, nonnegative=False, input=stage)
    learning = LearningSpec(inference=inference, epochs=epochs, update=EveryEpoch(reset_at=()))
    recipe, rules = Recipe(model=spec, learning=(learning,), batch_size=100), deconvnet._project
    if rule == "plane":
        deconvnet._project = per_plane
    try:
        return train(images, recipe, options=TrainingOptions(device="cpu")).model
    finally:
        deconvnet._project = rules


def curve(model: DeconvNet, images: Tensor, steps: int) -> list[dict[str, float]]:
    """Non-zeros in a hundred pixels and PSNR at every λ."""
    points = []
    for lam in LAMBDAS:
        solution = infer(
            model,
            images,
            InferenceSpec(lam=lam, steps=steps, step=LineSearch(momentum=True), pooling_step=1.0),
        )
        error = float((solution.reconstruction - images).square().mean())
        nonzeros = 100 * float(solution.features.count_nonzero()) / (images.numel() / 3)
        points.append(
            {"lam": lam, "nonzeros_in_100_pixels": nonzeros, "psnr": -10 * float(np.log10(error))}
        )
        print(points[-1], flush=True)
    return points


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--crops", type=int, default=200)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=150, help="of inference in the test")
    parser.add_argument(
        "--lam",
        type=float,
        default=5.0,
        help="λ of training; planes of length 1 make it 3 times as large",
    )
    parser.add_argument(
        "--rules", nargs="+", choices=["filter", "plane"], default=["filter", "plane"]
    )
    args = parser.parse_args()
    training, test = (
        crops(False, args.crops, args.size, 0),
        crops(True, args.crops // 4, args.size, 1),
    )
    results: dict[str, Any] = {}
    for rule in args.rules:
        model = learned_model(rule, training, args.epochs, args.lam)
        points = curve(model, test, args.steps)
        x, y = ([point[name] for point in points] for name in ("nonzeros_in_100_pixels", "psnr"))
        at = {f"{n:g}": float(np.interp(n, x, y)) for n in AT if x[0] <= n <= x[-1]}
        results[rule] = {"curve": points, "psnr_at_nonzeros_in_100_pixels": at}
        print(rule, at, flush=True)
    runs = RESULTS.read({"runs": []})["runs"]
    runs.append({"machine": machine(), **vars(args), "results": results})
    RESULTS.write({"runs": runs})


if __name__ == "__main__":
    main()
