"""How fast do two CPU cores learn, in a stream and by epochs? Costs on held-out training images of
MNIST.

    python -m benchmarks.learning.streaming_cpu TRAIN_IMAGES [--images 10000] [--held-out 5000]

TRAIN_IMAGES is MNIST's train-images-idx3-ubyte, gzipped or not. Both ways learn from its first
images and are evaluated on its last ones, by 50 steps from scratch with λ = 2, α = ½: the demo's
settings in a stream, and those it had before, 3 + 5 epochs of 10 steps. Evaluating takes no part in
the seconds, but most of the time: 5,000 images take 20 s for each point of layer 2 on two fast
cores. Where other programs use the cores, half the processor seconds are what two idle cores take.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.learning.learning_curve import curve, record
from benchmarks.machine import machine
from whatwhere import data, override, read_recipe
from whatwhere.spec import EveryEpoch, LineSearch, Recipe

RESULTS = Path(__file__).parent / "results" / "streaming_cpu.json"
STOPS = 4  # snapshots of each layer in a stream
BY_EPOCH = {"update": EveryEpoch(reset_at=[]), "epochs": 3, "cg_steps": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--held-out", type=int, default=5_000)
    given = parser.parse_args()
    pixels = data.load(given.file)
    training, held_out = pixels[: given.images], pixels[len(pixels) - given.held_out :]
    stream = read_recipe("demo")
    inference = {"lam": 2.0, "alpha": 0.5, "steps": 10, "step": LineSearch(per="batch")}
    layers = {"each": {**BY_EPOCH, "inference": inference}, "2": {"epochs": 5}}
    epochs = override(Recipe.paper(), {"batch_size": 500, "learning": layers})
    evaluated = (
        replace(k, inference=replace(k.inference, step=LineSearch())) for k in epochs.learning
    )
    evaluation = replace(epochs, learning=tuple(evaluated))
    sizes = {"images": given.images, "held_out": given.held_out, "threads": torch.get_num_threads()}
    curves: dict[str, Any] = {}
    for name, recipe in (("stream", stream), ("epochs", epochs)):
        once = replace(
            recipe, learning=tuple(replace(layer, epochs=1) for layer in recipe.learning)
        )
        record(once, training[:20])  # compiles, not counted
        passes = replace(recipe, learning=once.learning) if name == "stream" else recipe
        snapshots = record(
            passes, training, every=max(1, given.images // recipe.batch_size // STOPS)
        )
        curves[name] = curve(snapshots, evaluation, held_out)
        print(name, curves[name][-1], flush=True)
        RESULTS.write_text(
            json.dumps({"machine": machine(), **sizes, "curves": curves}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
