"""Few labels of any folder: errors, calibration, suggestions and estimates by the shipped way.

    python -m benchmarks.labels.any_folder_rows DATA ROWS
    python -m benchmarks.labels.any_folder ROWS --out FILE.json [--seconds 400] [--processes 8]

ROWS is the folder that `any_folder_rows.py` fills. Errors are those of pictures without a label,
with 1, 3 and 10 labels a class, balanced or drawn at random from all pictures, ten draws each. A
simulated person labels what is suggested, or pictures at random. Results are written after every
step; `--seconds` bounds the time, and `--parts` chooses what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from multiprocessing import TimeoutError as PoolTimeout
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import whatwhere as ww
from whatwhere.data import few_labels

DRAWS = 10
COUNTS = (5, 10, 15, 20, 30, 40, 50, 60)
PER_CLASS = (1, 3, 10)


class Kept(NamedTuple):
    """Rows [N, d] at unit length, their classes [N], and a graph of the rows."""

    rows: np.ndarray
    y: np.ndarray
    graph: ww.GraphClassifier


class Draws(NamedTuple):
    """All draws of a number of labels of a set, one after the other."""

    file: str
    per_class: int
    balanced: bool

    @property
    def key(self) -> str:
        kind = "balanced" if self.balanced else "random"
        return f"{Path(self.file).stem}, {self.per_class} {kind}"


class Session(NamedTuple):
    """A simulated person who labels what is suggested, or pictures at random."""

    file: str
    suggested: bool
    seed: int

    @property
    def key(self) -> str:
        kind = "suggested" if self.suggested else "random"
        return f"{Path(self.file).stem.removesuffix(', own')}, {kind}, {self.seed}"


@lru_cache(maxsize=1)
def read(file: str) -> Kept:
    torch.set_num_threads(1)
    kept = np.load(file)
    rows = kept["rows"].astype(np.float32)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-30)
    _, y = np.unique(kept["y"], return_inverse=True)
    return Kept(rows, y, ww.GraphClassifier().fit(rows, y))


def calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    """The expected calibration error of ten bins."""
    sure = probabilities.max(1)
    right = probabilities.argmax(1) == y
    bins = np.minimum((10 * sure).astype(int), 9)
    used = [bins == number for number in np.unique(bins)]
    gaps = [rows.mean() * abs(sure[rows].mean() - right[rows].mean()) for rows in used]
    return float(sum(gaps))


def draw(y: np.ndarray, per_class: int, seed: int, balanced: bool) -> np.ndarray:
    """The rows that get a label."""
    classes = len(np.unique(y))
    if balanced:
        fewest = np.bincount(y).min()
        return few_labels(y, min(per_class, fewest) * classes, seed)
    return np.random.default_rng(seed).permutation(len(y))[: per_class * classes]


class Outcome(NamedTuple):
    """What a draw gives on rows without a label.

    percent        errors of the default, of the nearest label and of a linear SVM on the same rows,
                   and how well calibrated the default is
    probabilities  of the classes by the default, [n, K]
    y              the classes, [n]
    """

    percent: dict[str, float]
    probabilities: np.ndarray
    y: np.ndarray


def outcome_of_draw(kept: Kept, chosen: np.ndarray) -> Outcome:
    from sklearn.svm import LinearSVC

    rows, y, graph = kept
    rest = np.setdiff1d(np.arange(len(y)), chosen)
    given = np.full(len(y), -1)
    given[chosen] = y[chosen]
    graph.refit(given)
    shares = np.zeros((len(y), int(y.max()) + 1))
    shares[:, graph.classes_] = graph.label_distributions_
    nearest = y[chosen][(rows[rest] @ rows[chosen].T).argmax(1)]
    linear = np.full(len(rest), y[chosen][0])
    if len(graph.classes_) > 1:
        linear = LinearSVC(C=1).fit(rows[chosen], y[chosen]).predict(rows[rest])
    found = {
        "graph": np.mean(shares[rest].argmax(1) != y[rest]),
        "nearest": np.mean(nearest != y[rest]),
        "linear": np.mean(linear != y[rest]),
        "calibration": calibration_error(shares[rest], y[rest]),
        "estimate": np.mean(1 - shares[rest].max(1)),
    }
    percent = {name: round(100 * float(value), 3) for name, value in found.items()}
    return Outcome(percent, shares[rest], y[rest])


def compare(job: Draws) -> tuple[str, dict[str, list[float]]]:
    """The errors of all draws, by method. The calibration error of a draw of few rows is mostly
    chance, so that of all draws together stands next to it."""
    warnings.simplefilter("ignore", UserWarning)
    kept = read(job.file)
    found: dict[str, list[float]] = {}
    outcomes: list[Outcome] = []
    for seed in range(DRAWS):
        chosen = draw(kept.y, job.per_class, seed, job.balanced)
        outcomes.append(outcome_of_draw(kept, chosen))
        for name, value in outcomes[-1].percent.items():
            found.setdefault(name, []).append(value)
    probabilities = np.concatenate([outcome.probabilities for outcome in outcomes])
    together = calibration_error(probabilities, np.concatenate([o.y for o in outcomes]))
    found["calibration of all draws"] = [round(100 * together, 3)]
    return job.key, found


def simulate(job: Session) -> tuple[str, dict[str, Any]]:
    """Errors and estimates against the number of labels, suggested or at random."""
    kept = read(job.file)
    y = kept.y.astype(str)
    session = ww.Labelling(kept.rows)
    order = np.random.default_rng(job.seed).permutation(len(y))
    errors: dict[int, float] = {}
    estimates: dict[int, float | None] = {}
    for count in range(1, COUNTS[-1] + 1):
        if job.suggested:
            row = order[0] if count == 1 else session.suggested_rows(1)[0]
            session.label({int(row): y[row]})
        elif count in COUNTS:
            session.label({int(row): y[row] for row in order[:count]})
        if count in COUNTS:
            errors[count] = round(100 * float(np.mean(session.predict().classes != y)), 3)
            estimate = session.error()
            estimates[count] = None if estimate is None else round(100 * estimate, 3)
    return job.key, {"errors": errors, "estimates": estimates}


class Log:
    """Results as JSON, written after every step."""

    def __init__(self, file: Path, seconds: float) -> None:
        self.file = file
        self.end = time.monotonic() + seconds
        self.results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def keep(self, part: str, key: str, value: Any) -> None:
        self.results.setdefault(part, {})[key] = value
        temporary = self.file.with_suffix(".part")
        temporary.write_text(json.dumps(self.results, indent=1) + "\n")
        os.replace(temporary, self.file)

    def run(self, part: str, work: Callable[[Any], Any], jobs: Iterable[Any], count: int) -> None:
        """Do the jobs whose results are not there yet, in some processes, while time is left."""
        done = self.results.get(part, {})
        jobs = [job for job in jobs if job.key not in done]
        with get_context("spawn").Pool(count) as pool:
            waiting = pool.imap_unordered(work, jobs, chunksize=1)
            for _ in jobs:
                try:
                    key, value = waiting.next(timeout=max(0.1, self.end - time.monotonic()))
                except PoolTimeout:
                    break
                self.keep(part, key, value)
            pool.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--parts", nargs="+", default=["draws", "sessions"])
    options = parser.parse_args()
    log = Log(options.out, options.seconds)
    # small files first: all that is measured of them is cheap
    files = sorted(options.rows.glob("*.npz"), key=lambda file: file.stat().st_size)
    for file in files:
        kept = np.load(file)
        about = {"shape": kept["rows"].shape, "why": str(kept["why"])}
        log.keep("rows", file.stem, about | {"seconds": float(kept["seconds"])})
    draws = [
        Draws(str(file), per_class, balanced)
        for file in files
        for per_class in PER_CLASS
        for balanced in (True, False)
    ]
    own = [file for file in files if file.stem.endswith(", own")]
    sessions = [
        Session(str(file), suggested, seed)
        for file in own
        for seed in range(DRAWS)
        for suggested in (True, False)
    ]
    if "draws" in options.parts:
        log.run("draws", compare, draws, options.processes)
    if "sessions" in options.parts:
        log.run("sessions", simulate, sessions, options.processes)


if __name__ == "__main__":
    main()
