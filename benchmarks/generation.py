"""Are generated digits recognised? The demo's linear SVM judges them, independent samples and real
digits.

    python benchmarks/generation.py RUN         # a folder that `whatwhere demo` made; writes
    results/logs.json

The codes of training digits are the examples. Recognised with a margin: the decision of the best
class is at least 1 above that of the second (a training digit beyond the SVM's margins has 2). Also
recorded: the distance of an image from the nearest example, and from the nearest reconstruction of
one, since copies of the examples would be recognised, too.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from log import Log
from machine import machine
from torch import Tensor

import whatwhere as ww
from whatwhere.classification import describe_images, fit_svm

RESULTS = Log("generation")
EXAMPLES, COUNT, C, MARGIN = 2000, 200, 30.0, 1.0


def independent(examples: ww.Solution, count: int) -> Tensor:
    """Every feature and every pooling variable from an example of its own."""
    generator = torch.Generator().manual_seed(0)

    def draw(values: Tensor) -> Tensor:
        return values.gather(
            0, torch.randint(len(values), (count, *values.shape[1:]), generator=generator)
        )

    assert examples.decoder is not None
    return examples.decoder.decode(examples.latents.map(draw))


def main(folder: str) -> None:
    run = ww.read_run(folder)
    digits, test = ww.data.load("digits"), ww.data.load("digits", split="test")
    assert digits.labels is not None
    examples = ww.infer(run.model, digits[:EXAMPLES], run.recipe.inference)
    x = describe_images(run.model, digits[:EXAMPLES], run.recipe)
    svm = fit_svm(x, digits.labels[:EXAMPLES], C)
    solution = ww.infer(run.model, test[:COUNT], run.recipe.inference)
    kinds = {
        "real test digits": test[:COUNT],
        "real test digits, reconstructed": solution.reconstruction,
        "generated, 1 sweep": ww.generate(examples, COUNT, sweeps=1),
        "generated": ww.generate(examples, COUNT),
        "generated, 4 sweeps": ww.generate(examples, COUNT, sweeps=4),
        "generated, independently": independent(examples, COUNT),
    }
    known = {
        "nearest_example": digits[:EXAMPLES],
        "nearest_reconstruction": examples.reconstruction.clamp(0, 1),
    }
    rows = [{"images": name, **judged(images, run, svm, known)} for name, images in kinds.items()]
    for row in rows:
        print(row)
    RESULTS.write({"machine": machine(), "margin": MARGIN, "rows": rows})


def judged(
    images: Tensor, run: ww.TrainedRun, svm: Any, known: dict[str, Tensor]
) -> dict[str, float]:
    images = images.clamp(0, 1)
    decision = np.sort(svm.decision(describe_images(run.model, images, run.recipe)), 1)
    margin = decision[:, -1] - decision[:, -2]
    nearest = {
        k: float(torch.cdist(images.flatten(1), x.flatten(1)).amin(1).mean())
        for k, x in known.items()
    }
    return {
        "recognised": float((margin >= MARGIN).mean()),
        "median_margin": float(np.median(margin)),
        **nearest,
    }


if __name__ == "__main__":
    main(sys.argv[1])
