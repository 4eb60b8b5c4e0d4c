"""Few labels of any folder: errors, calibration, suggestions and estimates by the shipped way.

    python -m reproduction.studies.any_folder DATA --out FILE.json [--seconds 400] [--processes 8]

DATA is a folder with `steel-surfaces.zip`, `blood-cells.zip`, `magnetic-tiles.zip` and
`fashion-mnist/`, `mnist/` (unpacked, or `labels-data.npz`: a part of both). Settings were chosen on
one half of the steel and blood pictures (`HALF = "validation"`); the other half is tested once. A
model learns from the pictures of its half, without labels. Rows are those of `ww.Labelling`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import zipfile
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from whatwhere.data import few_labels
from whatwhere.progress import no_stage
from whatwhere.spec.execution import Execution
from whatwhere.spec.tasks import Distortions
from whatwhere.tasks.classification.picture_classifier import describe_pictures

DRAWS = 10
COUNTS = (5, 10, 15, 20, 30, 40, 50, 60)
PER_CLASS = (1, 3, 10)
HALF = "test"
CLOTHES = 10_000  # of a pool
LARGEST_CLASS, SMALLEST_CLASS = 3000, 60  # of unequal digits


def half_of(count: int, which: str) -> np.ndarray:
    """The rows of a half."""
    order = np.random.default_rng(0).permutation(count)
    chosen = order[: count // 2] if which == "validation" else order[count // 2 :]
    return np.sort(chosen)


def rows_of(images: Any, run: Any) -> tuple[np.ndarray, str, float]:
    """Rows of images, what they describe, and the seconds after training."""
    options = Execution(device="auto")
    loaded = images if isinstance(images, ww.data.Images) else ww.data.load(images)
    if run is None:
        from whatwhere.tasks.classification.picture_classifier import learn

        run = learn(loaded, None, options, no_stage)
    start = time.perf_counter()
    describe, rows = describe_pictures(loaded, run, Distortions(), options, None, no_stage)
    return rows.numpy(), describe.why, time.perf_counter() - start


def zipped(file: Path, which: str) -> tuple[Any, np.ndarray]:
    folder = Path(tempfile.mkdtemp()) / file.stem
    zipfile.ZipFile(file).extractall(folder)
    images = ww.data.load(folder)
    rows = half_of(len(images), which)
    return images.subset(rows), np.asarray(images.labels)[rows]


def digits_run() -> Any:
    """The model `mnist` with its learned steps."""
    model = ww.load("mnist")
    assert model.source is not None
    steps = ww.LearnedSteps.load(model.source)
    recipe = replace(ww.Recipe.paper(), inference=steps.spec, plan=())
    return ww.learning.TrainedRun("mnist", recipe, steps.model_for(model))


def defects(file: Path) -> tuple[torch.Tensor, np.ndarray]:
    from reproduction.studies.anomaly_tiles import KINDS, read_tiles

    found = [picture for picture in read_tiles(str(file)) if picture["kind"] in KINDS]
    small = [
        F.interpolate(torch.from_numpy(p["pixels"])[None, None].float(), (64, 64), mode="area")
        for p in found
    ]
    return torch.cat(small), np.array([picture["kind"] for picture in found])


def sets(data: Path, which: str) -> dict[str, Any]:
    """A function for each set that returns images, labels and a run."""

    def part(name: str) -> Any:
        return np.load(data / "labels-data.npz")[name]

    def clothes(number: int) -> Any:
        rows = slice(CLOTHES * number, CLOTHES * (number + 1))
        return part("fx")[rows], part("fy")[rows], "fashion"

    digits = ww.data.load("digits")
    return {
        "steel": lambda: (*zipped(data / "steel-surfaces.zip", which), None),
        "blood": lambda: (*zipped(data / "blood-cells.zip", which), None),
        "defects": lambda: (*defects(data / "magnetic-tiles.zip"), None),
        "digits": lambda: (digits, np.asarray(digits.labels), digits_run()),
        "unequal digits": lambda: (part("ux"), part("uy"), digits_run()),
        "clothes 1": lambda: clothes(0),
        "clothes 2": lambda: clothes(1),
        "clothes 3": lambda: clothes(2),
    }


def calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    """The expected calibration error of ten bins."""
    sure = probabilities.max(1)
    right = probabilities.argmax(1) == y
    bins = np.minimum((10 * sure).astype(int), 9)
    used = [bins == number for number in np.unique(bins)]
    gaps = [rows.mean() * abs(sure[rows].mean() - right[rows].mean()) for rows in used]
    return float(sum(gaps))


def draw(y: np.ndarray, per_class: int, seed: int, balanced: bool) -> np.ndarray:
    classes = len(np.unique(y))
    if balanced:
        fewest = np.bincount(y).min()
        return few_labels(y, min(per_class, fewest) * classes, seed)
    return np.random.default_rng(seed).permutation(len(y))[: per_class * classes]


def compare(job: tuple[str, str, int, int, bool]) -> tuple[str, dict[str, float]]:
    """The errors of one draw: the default, the nearest label and a linear SVM on the same rows."""
    from sklearn.svm import LinearSVC

    file, name, per_class, seed, balanced = job
    torch.set_num_threads(1)
    kept = np.load(file)
    rows = kept["rows"].astype(np.float32)
    _, y = np.unique(kept["y"], return_inverse=True)
    chosen = draw(y, per_class, seed, balanced)
    rest = np.setdiff1d(np.arange(len(y)), chosen)
    given = np.full(len(y), -1)
    given[chosen] = y[chosen]
    graph = ww.GraphClassifier().fit(rows, given)
    shares = np.zeros((len(y), int(y.max()) + 1))
    shares[:, graph.classes_] = graph.label_distributions_
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    nearest = y[chosen][(unit @ unit[chosen].T).argmax(1)]
    found = {
        "graph": np.mean(shares[rest].argmax(1) != y[rest]),
        "nearest": np.mean(nearest[rest] != y[rest]),
        "calibration": calibration_error(shares[rest], y[rest]),
        "estimate": np.mean(1 - shares[rest].max(1)),
    }
    if len(np.unique(y[chosen])) > 1:
        svm = LinearSVC(C=1).fit(unit[chosen], y[chosen])
        found["linear"] = np.mean(svm.predict(unit[rest]) != y[rest])
    kind = "balanced" if balanced else "random"
    return f"{name}, {per_class} {kind}", {k: round(100 * float(v), 3) for k, v in found.items()}


def simulate(job: tuple[str, str, bool, int]) -> tuple[str, dict[str, Any]]:
    """Errors and estimates against the number of labels, suggested or at random."""
    file, name, suggested, seed = job
    torch.set_num_threads(1)
    kept = np.load(file)
    rows = kept["rows"].astype(np.float32)
    y = kept["y"].astype(str)
    session = ww.Labelling(rows)
    order = np.random.default_rng(seed).permutation(len(y))
    errors: dict[int, float] = {}
    estimates: dict[int, float | None] = {}
    for count in range(1, COUNTS[-1] + 1):
        if suggested:
            row = order[0] if count == 1 else session.suggested_rows(1)[0]
            session.label({int(row): y[row]})
        elif count in COUNTS:
            session.label({int(row): y[row] for row in order[:count]})
        if count in COUNTS:
            errors[count] = round(100 * float(np.mean(session.predict().classes != y)), 3)
            estimate = session.error()
            estimates[count] = None if estimate is None else round(100 * estimate, 3)
    kind = "suggested" if suggested else "random"
    return f"{name}, {kind}, {seed}", {"errors": errors, "estimates": estimates}


class Log:
    """Results as JSON, written after every step."""

    def __init__(self, file: Path, seconds: float) -> None:
        self.file = file
        self.end = time.monotonic() + seconds
        self.results: dict[str, Any] = {}

    def keep(self, part: str, key: str, value: Any) -> None:
        self.results.setdefault(part, {})[key] = value
        temporary = self.file.with_suffix(".part")
        temporary.write_text(json.dumps(self.results, indent=1) + "\n")
        os.replace(temporary, self.file)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--half", default=HALF, choices=("validation", "test"))
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args()
    log = Log(options.out, options.seconds)
    work = Path(tempfile.mkdtemp())
    files = {}
    for name, make in sets(options.data, options.half).items():
        if options.sets and name not in options.sets:
            continue
        try:
            images, y, run = make()
            rows, why, seconds = rows_of(images, run)
        except Exception as error:
            log.keep("failed", name, repr(error)[:400])
            continue
        files[name] = str(work / f"{name}.npz")
        np.savez(files[name], rows=rows, y=y)
        log.keep("rows", name, {"shape": rows.shape, "why": why, "seconds": seconds})
    draws = [
        (file, name, per, seed, balanced)
        for seed in range(DRAWS)
        for per in PER_CLASS
        for balanced in (True, False)
        for name, file in files.items()
    ]
    # small sets first: all their draws are cheap
    draws.sort(key=lambda job: "clothes" in job[1] or "digits" in job[1])
    sessions = [
        (file, name, suggested, seed)
        for seed in range(DRAWS)
        for name, file in files.items()
        for suggested in (True, False)
    ]
    sessions.sort(key=lambda job: "clothes" in job[1] or "digits" in job[1])
    with get_context("spawn").Pool(options.processes) as pool:
        found: dict[str, dict[str, list[float]]] = {}
        for key, values in pool.imap_unordered(compare, draws, chunksize=1):
            for kind, value in values.items():
                found.setdefault(key, {}).setdefault(kind, []).append(value)
            log.keep("draws", key, found[key])
            if log.left < 0.55 * options.seconds:
                break
        pool.terminate()
    with get_context("spawn").Pool(options.processes) as pool:
        for key, value in pool.imap_unordered(simulate, sessions, chunksize=1):
            log.keep("sessions", key, value)
            if log.left < 0:
                break
        pool.terminate()


if __name__ == "__main__":
    main()
