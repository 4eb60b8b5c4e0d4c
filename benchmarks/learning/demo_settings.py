"""How should the demo learn and infer? By cross-validation on the 5,000 embedded training digits
alone.

    python -m benchmarks.learning.demo_settings [NUMBERS]   # of candidates; adds lines to
    results/demo_settings.jsonl

Every candidate learns in a stream, layer 2 from other digits than layer 1 where there are enough.
Recorded: the error of the demo's linear SVM on layer 2 in six-fold cross-validation at two values
of C, and processor seconds of a thread. Test digits have no part in it. Rows that the file holds
already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from reproduction.few_labels import cross_validation
from whatwhere import data, override
from whatwhere.classification import describe_images, protocol
from whatwhere.learning import TrainingOptions, train
from whatwhere.spec import EveryBatch, EveryEpoch, LineSearch, Recipe

RESULTS = Path(__file__).parent / "results" / "demo_settings.jsonl"
GRID = (3.0, 30.0)  # 0.3 is never the best for layer 2


@dataclass(frozen=True)
class Candidate:
    """images for each layer, steps T and λ of both layers, whether the steps are accelerated, batch
    size.

    inference   steps, and whether they are accelerated, with which the digits are described (λ = 5)
    epochs      of both layers, if it learns by epochs from stored latents, as the demo once did
    """

    images: int = 1600
    steps: tuple[int, int] = (20, 20)
    lam: tuple[float, float] = (2.0, 2.0)
    accelerated: bool = True
    batch: int = 50
    inference: tuple[int, bool] = (20, True)
    epochs: tuple[int, int] | None = None


CANDIDATES = [
    Candidate(),  # the demo's so far
    Candidate(images=2500),
    Candidate(images=4000),
    Candidate(images=4000, batch=100),
    Candidate(images=2500, lam=(2.0, 0.5)),
    Candidate(images=2500, lam=(2.0, 5.0)),
    Candidate(images=2500, steps=(40, 40)),
    Candidate(images=5000, steps=(10, 10), batch=100),
    Candidate(images=2500, inference=(50, False)),
    Candidate(images=2500, steps=(40, 40), accelerated=False, inference=(50, False)),
    Candidate(images=2500, inference=(10, True)),
    Candidate(images=2500, inference=(30, False)),
    Candidate(images=2000, inference=(10, True)),
    Candidate(images=2000, inference=(30, False)),
    Candidate(images=2000, steps=(10, 20), inference=(10, True)),
    Candidate(images=2000, lam=(2.0, 5.0), inference=(10, True)),
    Candidate(images=2000, lam=(5.0, 5.0), inference=(10, True)),
    Candidate(images=2000),
    # the demo before
    Candidate(steps=(10, 10), accelerated=False, batch=500, inference=(50, False), epochs=(3, 5)),
]


def recipe_of(candidate: Candidate, seed: int) -> Recipe:
    def layer(k: int) -> dict[str, Any]:
        step = LineSearch(momentum=candidate.accelerated)
        inference = {
            "steps": candidate.steps[k],
            "lam": candidate.lam[k],
            "alpha": 0.5,
            "step": step,
        }
        if candidate.epochs is not None:
            by_epoch = {
                "update": EveryEpoch(reset_at=[]),
                "epochs": candidate.epochs[k],
                "cg_steps": 2,
            }
            return {**by_epoch, "inference": {**inference, "step": replace(step, per="batch")}}
        return {"update": EveryBatch(), "epochs": 1, "cg_steps": 1, "inference": inference}

    steps, accelerated = candidate.inference
    changes = {
        "batch_size": candidate.batch,
        "seed": seed,
        "learning": {"1": layer(0), "2": layer(1)},
    }
    return override(
        Recipe.paper(),
        {**changes, "inference": {"steps": steps, "step": {"momentum": accelerated}}},
    )


def measure(candidate: Candidate, seed: int) -> dict[str, Any]:
    digits, recipe = data.load("digits"), recipe_of(candidate, seed)
    assert digits.labels is not None
    start = time.process_time()
    count = candidate.images if candidate.epochs is None else None
    model = train(digits, recipe, image_count=count, options=TrainingOptions(device="cpu")).model
    learned = time.process_time()
    x = describe_images(model, digits, replace(recipe, batch_size=500))
    described = time.process_time()
    _, trials = protocol.choose(
        x, digits.labels, grid=GRID, validation=cross_validation(digits.labels)
    )
    seconds = {"learning_seconds": learned - start, "describing_seconds": described - learned}
    return {"seed": seed, **seconds, "errors": {str(trial.C): trial.error for trial in trials}}


def rows_so_far() -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", type=int, default=list(range(len(CANDIDATES))))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for seed in given.seeds:
        for number in given.numbers:
            about = {
                key: value for key, value in asdict(CANDIDATES[number]).items() if value is not None
            }
            about = json.loads(json.dumps(about))
            if any(row["candidate"] == about and row["seed"] == seed for row in rows_so_far()):
                continue
            line = json.dumps({"candidate": about, **measure(CANDIDATES[number], seed)})
            print(line, flush=True)
            with RESULTS.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
