"""Labels that are suggested against labels at random: errors on all pictures, against the number of
labels.

    python -m benchmarks.labels.labelling DATA --out FILE.json [--sets digits fashion defects
    tiles] [--processes 1]

DATA is a folder with Fashion-MNIST (`fashion-mnist/`) and the magnetic tiles
(`magnetic-tiles.zip`). Every set is described first, as `ww.Labelling` does it; descriptors are
kept next to FILE. A person is simulated who always labels the first suggestion with its true class;
the first picture of all is drawn at random, by the seed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from benchmarks.defects.anomaly_tiles import KINDS, read_tiles

SIDE = 64  # of the tiles, in pixels
COUNTS = (5, 10, 15, 20, 25, 30, 40, 50, 60)
# numbers of labels at which the session's own estimate of the error is kept
ESTIMATED = (
    20,
    30,
    60,
)


def digits(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The 5,000 embedded digits by the model `mnist` and its learned steps."""
    images = ww.data.load("digits")
    model = ww.load("mnist")
    assert model.source is not None
    steps = ww.LearnedSteps.load(model.source)
    recipe = replace(ww.Recipe.paper(), inference=steps.spec, plan=())
    run = ww.learning.TrainedRun("mnist", recipe, steps.model_for(model))
    return described(images, run), np.asarray(images.labels)


def fashion(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The first 10,000 training images by both layers of the model `fashion`, 50 steps."""
    os.environ["WHATWHERE_DATA"] = str(data)
    images = ww.data.load("fashion-mnist").subset(np.arange(10_000), "10,000 clothes")
    return described(images, "fashion"), np.asarray(images.labels)


def tiles(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """All 811 tiles in 64 × 64 pixels, by a model that learns from them; classes: kinds of defect,
    and none."""
    return surfaces(data, lambda kind: True)


def defects(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The 236 tiles that have a defect."""
    return surfaces(data, lambda kind: kind in KINDS)


SETS = {"digits": digits, "fashion": fashion, "defects": defects, "tiles": tiles}


def surfaces(data: Path, wanted: Callable[[str], bool]) -> tuple[np.ndarray, np.ndarray]:
    found = [
        picture
        for picture in read_tiles(str(data / "magnetic-tiles.zip"))
        if wanted(picture["kind"])
    ]
    small = [
        F.interpolate(torch.from_numpy(p["pixels"])[None, None], (SIDE, SIDE), mode="area")
        for p in found
    ]
    return described(torch.cat(small), None), np.array([picture["kind"] for picture in found])


def described(images: Any, run: Any) -> np.ndarray:
    return ww.Labelling(images, run=run, options=ww.learning.TrainingOptions()).rows.numpy()


def simulate(rows: np.ndarray, y: np.ndarray, seed: int, suggested: bool, most: int = 60) -> dict:
    """Errors at some numbers of labels, the estimates of the error, and the longest time from a
    label to its update."""
    session, order = ww.Labelling(rows), np.random.default_rng(seed).permutation(len(y))
    errors, estimates, slowest = {}, {}, 0.0
    for count in range(1, most + 1):
        row = order[count - 1] if count == 1 or not suggested else session.suggest(1)[0]
        start = time.perf_counter()
        if suggested or count in COUNTS:
            session.label({int(r): str(y[r]) for r in (order[:count] if not suggested else [row])})
        slowest = max(slowest, time.perf_counter() - start)
        if count in COUNTS:
            errors[count] = float(np.mean(session.predict().classes != y.astype(str)))
            if count in ESTIMATED:
                estimates[count] = session.error()
    return {"errors": errors, "estimates": estimates, "slowest_update": slowest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.sets:
        if not (kept := options.out.with_name(f"{name}.npz")).exists():
            rows, y = SETS[name](options.data)
            np.savez(kept, rows=rows, y=y)
            print(name, rows.shape, flush=True)
    kinds, seeds = ("suggested", "random"), range(options.seeds)
    jobs = [
        (options.out, name, kind, seed) for name in options.sets for kind in kinds for seed in seeds
    ]
    with get_context("spawn").Pool(options.processes) as pool:
        for key, found in pool.imap_unordered(run, jobs, chunksize=1):
            for part, value in found.items():
                results.setdefault(part, {})[key] = value
            print(key, {k: round(100 * v, 2) for k, v in found["errors"].items()}, flush=True)
            options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def run(job: tuple[Path, str, str, int]) -> tuple[str, dict]:
    """One simulation, and its name in the file of results."""
    out, name, kind, seed = job
    data = np.load(out.with_name(f"{name}.npz"))
    return f"{name} {kind} {seed}", simulate(
        data["rows"].astype(np.float32), data["y"], seed, kind == "suggested"
    )


if __name__ == "__main__":
    main()
