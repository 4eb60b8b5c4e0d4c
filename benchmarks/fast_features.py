"""Whole feature extraction of digits on one thread: learned steps next to plain ones and to
kymatio's scattering.

kymatio 0.3 asks for scipy < 1.17, so it is installed without its dependencies, in a folder:

    python -m pip install --no-deps --target kymatio 'kymatio==0.3.*'
    PYTHONPATH=kymatio python benchmarks/fast_features.py --out fast_features.json

Ours is `describe_images`: inference with the model that ships with the package, and the descriptor.
kymatio's is `Scattering2D` with the settings of the baseline in the reproduction (J = 3, L = 8,
order 2), at the batch size that is its fastest. All take turns in one process, so that what else
the machine does falls on all of them; the best of the rounds counts. Compilation is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import scipy.special
import torch
from machine import machine

import whatwhere as ww
from whatwhere.classification import describe_images

KYMATIO_BATCHES = (10, 50, 250)


def ours(
    model: ww.DeconvNet, images: torch.Tensor, inference: ww.InferenceSpec
) -> Callable[[], object]:
    recipe = replace(ww.Recipe.paper(), inference=inference)
    return lambda: describe_images(model, images, recipe, engine="cpu")


def scattering(images: torch.Tensor, batch: int) -> Callable[[], object]:
    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None  # kymatio 0.3 imports it for its transform of volumes
    from kymatio.torch import Scattering2D

    transform = Scattering2D(J=3, L=8, max_order=2, shape=tuple(images.shape[2:]))

    def run() -> object:
        with torch.no_grad():
            return [transform(part).flatten(1) for part in images.split(batch)]

    return run


def measure(
    methods: dict[str, Callable[[], object]], images: int, rounds: int
) -> list[dict[str, object]]:
    """The best processor and wall time of every method, in milliseconds an image."""
    best = {name: [float("inf"), float("inf")] for name in methods}
    for run in methods.values():
        run()
    for _ in range(rounds):
        for name, run in methods.items():
            since = time.process_time(), time.perf_counter()
            run()
            spent = time.process_time() - since[0], time.perf_counter() - since[1]
            best[name] = [
                min(old, 1000 * new / images) for old, new in zip(best[name], spent, strict=True)
            ]
    return [
        {"method": name, "processor_ms": cpu, "wall_ms": wall} for name, (cpu, wall) in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    images = ww.data.load("digits", split="test")[slice(0, given.images)]
    model, learned = ww.load("mnist"), ww.LearnedSteps.load(ww.models.path("mnist"), 5)
    methods = {
        "5 learned steps": ours(learned.model_for(model), images, learned.spec),
        "5 plain steps": ours(model, images, ww.InferenceSpec(steps=5)),
        "50 plain steps": ours(model, images, ww.InferenceSpec(steps=50)),
    }
    methods |= {
        f"scattering, batches of {batch}": scattering(images, batch) for batch in KYMATIO_BATCHES
    }
    rows = measure(methods, len(images), given.rounds)
    for row in rows:
        print(
            f"{row['method']:<28} {row['processor_ms']:8.3f} ms processor {row['wall_ms']:8.3f} ms"
            " wall, a digit"
        )
    times = {str(row["method"]): float(str(row["processor_ms"])) for row in rows}
    fastest = min(time for name, time in times.items() if name.startswith("scattering"))
    ratio = times["5 learned steps"] / fastest
    print(f"5 learned steps take {ratio:.2f} of the time of scattering")
    if given.out is not None:
        result = {
            "machine": machine(),
            "images": len(images),
            "threads": 1,
            "rows": rows,
            "ratio": ratio,
        }
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
