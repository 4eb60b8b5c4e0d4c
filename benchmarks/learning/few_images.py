"""How many epochs `train` takes for few images: what models of 50 digits explain of validation
digits.

    python -m benchmarks.learning.few_images --out few_images.json

50 of the first 3,000 embedded training digits are learned from, 200 of the last 2,000 are for
validation, none is a test digit. Sets of 50.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import whatwhere as ww
from whatwhere.learning.defaults import choose_defaults

EPOCHS = (12, 25, 50)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", type=int, default=3)
    a = parser.parse_args()
    digits, rows = ww.data.load("digits"), []
    seen = digits[3000:3200]
    for first in range(0, 50 * a.sets, 50):
        images = digits[first : first + 50]
        recipe = choose_defaults(images).recipe
        for epochs in EPOCHS:
            learning = tuple(replace(one, epochs=epochs) for one in recipe.learning)
            began = time.process_time()
            run = ww.train(images, replace(recipe, learning=learning))
            seconds = time.process_time() - began
            solution = ww.infer(run.model, seen, recipe.inference)
            variance = (seen - seen.mean((2, 3), keepdim=True)).square().sum()
            explained = 1 - float((solution.reconstruction - seen).square().sum() / variance)
            features = float((solution.features != 0).flatten(1).sum(1).float().mean())
            rows.append(
                {
                    "first": first,
                    "epochs": epochs,
                    "explained": round(explained, 4),
                    "features": features,
                }
            )
            rows[-1]["processor_seconds"] = round(seconds, 1)
            print(rows[-1], flush=True)
            a.out.write_text(
                json.dumps({"what": "benchmarks/learning/few_images.py", "rows": rows}, indent=1)
                + "\n"
            )


if __name__ == "__main__":
    main()
