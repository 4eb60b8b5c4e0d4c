"""How should the demo learn and infer? By cross-validation on the 5,000 embedded training digits alone.

    python studies/demo_settings.py [NUMBERS]   # of candidates; writes studies/results/demo_settings.json

Every candidate learns in a stream from the first 4,500 digits, layer 2 from those after layer 1's. Recorded: the cost
of the last 200 digits (layer 2, 50 steps from scratch, λ = 2, α = ½) and the error of the demo's linear SVM (C = 30) in
six-fold cross-validation over the first 2,500. Test digits have no part in it. Rows that the file holds already are not
measured again. Seconds are processor seconds of one thread. The demo learns from 1,600 images a layer, to save time.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from whatwhere import data, infer
from whatwhere.classification import describe_images, protocol
from whatwhere.learning import TrainingOptions, train
from whatwhere.spec import InferenceSpec, Recipe
from whatwhere.spec_toml import override

RESULTS = Path(__file__).parent / "results" / "demo_settings.json"
LEARNED, DESCRIBED, HELD_OUT = 4500, 2500, 200
C = 30.0


@dataclass(frozen=True)
class Candidate:
    """images for each layer, steps T and λ of both layers, whether the steps are accelerated, batch size.

    inference   steps, and whether they are accelerated, with which the digits are described (λ = 5)
    """

    images: int = 2000
    steps: tuple[int, int] = (20, 20)
    lam: tuple[float, float] = (2.0, 2.0)
    accelerated: bool = True
    batch: int = 50
    inference: tuple[int, bool] = (20, True)


CANDIDATES = [
    Candidate(),
    Candidate(lam=(2.0, 0.5)),
    Candidate(steps=(40, 20), accelerated=False),
    Candidate(images=1000),
    Candidate(images=1000, steps=(40, 40)),
    Candidate(images=4000, steps=(10, 10)),
    Candidate(inference=(50, False)),
    Candidate(batch=100),
]


def recipe_of(candidate: Candidate) -> Recipe:
    def layer(k: int) -> dict[str, Any]:
        inference = {"steps": candidate.steps[k], "lam": candidate.lam[k], "alpha": 0.5, "step_size": "image"}
        stream = {"update": "batch", "epochs": 1, "reset_at": [], "cg_steps": 1}
        return {**stream, "inference": {**inference, "momentum": candidate.accelerated}}

    steps, accelerated = candidate.inference
    changes = {"batch_size": candidate.batch, "learning": {"1": layer(0), "2": layer(1)}}
    return override(Recipe.paper(), {**changes, "inference": {"steps": steps, "momentum": accelerated}})


def measure(candidate: Candidate) -> dict[str, Any]:
    digits, recipe = data.load("digits"), recipe_of(candidate)
    assert digits.labels is not None
    start = time.process_time()
    options = TrainingOptions(device="cpu")
    model = train(recipe, digits[:LEARNED], image_count=candidate.images, options=options).model
    learned = time.process_time()
    judged = InferenceSpec(lam=2.0, alpha=0.5, steps=50)
    solution = infer(model, digits[len(digits) - HELD_OUT :], judged)
    start, described = learned - start, time.process_time()
    x = describe_images(model, digits[:DESCRIBED], replace(recipe, batch_size=500))
    described = time.process_time() - described
    trial, _ = protocol.choose({"": x}, digits.labels[:DESCRIBED], grid=(C,), rounds=protocol.FOLDS, solver="newton")
    cost = float(solution.stats.cost[-1].mean())
    return {"learning_seconds": start, "describing_seconds": described, "cost": cost, "error": trial.error}


def rows_so_far() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def main() -> None:
    for number in map(int, sys.argv[1:] or range(len(CANDIDATES))):
        about = json.loads(json.dumps(asdict(CANDIDATES[number])))
        if any(row["candidate"] == about for row in rows_so_far()):
            continue
        row = {"candidate": about, **measure(CANDIDATES[number])}
        print(json.dumps(row), flush=True)
        RESULTS.write_text(json.dumps([*rows_so_far(), row], indent=1) + "\n")


if __name__ == "__main__":
    main()
