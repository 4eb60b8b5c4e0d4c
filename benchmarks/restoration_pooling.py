"""Is the pooling worth it? Denoising with one and two layers, without pooling, with Gaussian and with max pooling.

    python benchmarks/photograph_tiles.py tiles.npy
    python benchmarks/restoration_pooling.py learn tiles.npy MODELS     # second layers, one for each kind of pooling
    python benchmarks/restoration_pooling.py denoise MODELS             # writes results/restoration_pooling.json

Layer 1 has the filters of the model `photographs` everywhere. Layer 2 is learned on them by the recipe
`photographs_two_layers.toml`, with the pooling that it is tested with. Pictures: the validation crops, σ = 25 of 255.
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
from restoration_problems import VALIDATION, make_problem, psnr

import whatwhere as ww
from whatwhere import read_recipe
from whatwhere.inference import machine
from whatwhere.restoration import RestorationSpec, denoise
from whatwhere.spec import PoolingKind

RESULTS = Path(__file__).parent / "results" / "restoration_pooling.json"
TWO_LAYERS = Path(__file__).parent / "photographs_two_layers.toml"
SIGMA = 25
POOLING: dict[str, tuple[PoolingKind, int]] = {"none": ("sum", 1), "gaussian": ("gaussian", 2), "max": ("max", 2)}
STEPS = {1: (10, 20, 60), 2: (10, 20)}  # by the number of layers
THRESHOLDS = {1: (1.3, 1.7), 2: (2.6, 4.0, 6.0, 8.0)}


def with_pooling(recipe: ww.Recipe, pooling: str) -> ww.Recipe:
    """The recipe with one kind of pooling in every layer."""
    kind, size = POOLING[pooling]
    layers = tuple(replace(layer, pooling_kind=kind, pool_size=size) for layer in recipe.model.layers)
    return replace(recipe, model=replace(recipe.model, layers=layers))


def one_layer(pooling: str) -> ww.DeconvNet:
    shipped = ww.load("photographs")
    spec = with_pooling(read_recipe("photographs"), pooling).model
    return ww.DeconvNet.from_parts(spec, shipped.filters, shipped.connectivity)


def learn_second_layer(tiles: torch.Tensor, pooling: str) -> tuple[ww.DeconvNet, dict[str, Any]]:
    recipe = with_pooling(read_recipe(TWO_LAYERS), pooling)
    start = ww.DeconvNet(recipe.model, seed=recipe.seed).with_filters(1, one_layer(pooling).filters[0])
    learned = replace(recipe.learning[0], epochs=0)
    processor = time.process_time()
    run = ww.train(replace(recipe, learning=(learned, *recipe.learning[1:])), tiles, start=start)
    return run.model, {"tiles": len(tiles), "processor_seconds": round(time.process_time() - processor, 1)}


def trials(model: ww.DeconvNet) -> list[dict[str, Any]]:
    problems = [make_problem(name, "denoise", SIGMA) for name in VALIDATION]
    rows = []
    for steps in STEPS[model.spec.depth]:
        for threshold in THRESHOLDS[model.spec.depth]:
            spec, processor = RestorationSpec(steps=steps, threshold=threshold), time.process_time()
            restored = [denoise(model, p.damaged[None, None], p.noise, spec=spec)[0, 0] for p in problems]
            seconds = time.process_time() - processor
            value = float(np.mean([psnr(x, p.truth) for x, p in zip(restored, problems, strict=True)]))
            rows.append({"steps": steps, "threshold": threshold, "psnr": round(value, 3), "s": round(seconds, 1)})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["learn", "denoise"])
    parser.add_argument("paths", type=Path, nargs="+", help="tiles and folder of models, or the folder alone")
    parser.add_argument("--pooling", nargs="+", default=list(POOLING), choices=list(POOLING))
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2], choices=[1, 2])
    parser.add_argument("--count", type=int, default=600, help="tiles to learn from")
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for pooling in args.pooling:
        print(pooling, flush=True)
        file = args.paths[-1] / f"photographs-2-{pooling}.safetensors"
        if args.action == "learn":
            tiles = torch.from_numpy(np.load(args.paths[0])[: args.count])
            model, learned = learn_second_layer(tiles, pooling)
            file.parent.mkdir(parents=True, exist_ok=True)
            ww.save(model, file)
            results.setdefault("learning of layer 2", {})[pooling] = learned
        for layers in args.layers if args.action == "denoise" else ():
            model = one_layer(pooling) if layers == 1 else ww.load(file)
            results.setdefault("trials", {})[f"{layers} layers, {pooling}"] = trials(model)
        results["machine"] = machine()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
