"""What keeping latents in 16 bits does to the cost: the paper's model on some of the embedded digits.

    python benchmarks/latent_dtype.py [--images 200] [--steps 20] [--epochs 4]

The same training with latents kept as float32, float16 and bfloat16; the cost per image of every epoch, and its
difference from float32's.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from whatwhere.data import load
from whatwhere.inference import machine
from whatwhere.learning import TrainingOptions, train
from whatwhere.spec import EveryEpoch, Recipe

RESULTS = Path(__file__).parent / "results" / "latent_dtype.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    recipe = Recipe.paper()
    learning = tuple(
        replace(
            spec,
            epochs=given.epochs,
            update=EveryEpoch(reset_at=()),
            inference=replace(spec.inference, steps=given.steps),
        )
        for spec in recipe.learning
    )
    recipe = replace(recipe, learning=learning, batch_size=100)
    images = load("digits")[: given.images]
    costs: dict[str, list[float]] = {}
    for dtype in ("float32", "float16", "bfloat16"):
        run = train(recipe, images, options=TrainingOptions(latent_dtype=dtype))
        costs[dtype] = [report.cost for report in run.history]
        difference = [cost / exact - 1 for cost, exact in zip(costs[dtype], costs["float32"], strict=True)]
        print(dtype, [round(cost, 3) for cost in costs[dtype]], [f"{value:+.2%}" for value in difference], flush=True)
    RESULTS.write_text(json.dumps({"machine": machine(), **vars(given), "cost_per_image": costs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
