"""Few labels on many sets of pictures: views alone, and views joined by what the labels say.

    python -m benchmarks.labels.views ROWS --out FILE.json [--sets fruit steel] [--draws 10]

ROWS is a folder with a file NAME.npz for each set (`benchmarks/labels/views_rows.py` writes it):
the rows of every view, and the classes `y`. Errors are those of all pictures without a label, with
1, 3 and 10 labels a class (at most half of a class), in per cent. *Nearest* takes the class of the
nearest label; *hand* is colour and edges side by side.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww

PER_CLASS = (1, 3, 10)
OWN = ("place", "anywhere")
PLAIN = ("colour", "edges", "patterns", "patches")
JOINED = {
    "own": OWN,
    "own, colour, edges, patterns": (*OWN, "colour", "edges", "patterns"),
    "all but the network": (*OWN, *PLAIN),
    "own, colour, edges, patterns, network": (*OWN, "colour", "edges", "patterns", "network"),
    "all": (*OWN, *PLAIN, "network"),
}
COLUMNS = {
    "place": "shapes",
    "anywhere": "textures",
}  # as the learned features are named when joined


class Rows(NamedTuple):
    """The rows of every view by its name, centred and of unit length; and the classes, [N]."""

    views: dict[str, torch.Tensor]
    y: np.ndarray


def read(file: Path) -> Rows:
    kept = np.load(file)
    _, y = np.unique(kept["y"].astype(str), return_inverse=True)
    views = {}
    for name in kept.files:
        if name != "y" and kept[name].ndim == 2:
            rows = torch.from_numpy(kept[name].astype(np.float32))
            views[name] = F.normalize(rows - rows.mean(0), dim=1)
    return Rows(views, y)


def draw(y: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """The rows that get a label: as many of each class, at most half of it."""
    generator = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(y):
        members = generator.permutation(np.flatnonzero(y == label))
        chosen += members[: min(per_class, len(members) // 2)].tolist()
    return np.sort(chosen)


Answer = Callable[[np.ndarray], np.ndarray]
"""From the numbers of labelled rows to the probabilities [N, K], or to the classes [N]."""


def nearest(rows: torch.Tensor, y: np.ndarray) -> Answer:
    return lambda chosen: y[chosen][(rows @ rows[chosen].T).argmax(1).numpy()]


class Graph:
    """Our classifier on rows of one view, or of several."""

    def __init__(self, views: dict[str, torch.Tensor], y: np.ndarray) -> None:
        columns = {COLUMNS.get(name, name): rows.shape[1] for name, rows in views.items()}
        self.rows = torch.cat(list(views.values()), 1).numpy()
        self.y = y
        self.classifier = ww.GraphClassifier(views=columns if len(columns) > 1 else None)
        self.classifier.fit(self.rows, y)
        self.weights: list[dict[str, float]] = []
        self.seconds: list[float] = []

    def __call__(self, chosen: np.ndarray) -> np.ndarray:
        given = np.full(len(self.y), -1)
        given[chosen] = self.y[chosen]
        start = time.perf_counter()
        self.classifier.refit(given)
        self.seconds.append(time.perf_counter() - start)
        if (weights := self.classifier.weights_) is not None:
            self.weights.append(dict(zip(weights.names, weights.values, strict=True)))
        return np.asarray(self.classifier.label_distributions_)


def answers(rows: Rows, chosen: Sequence[str]) -> dict[str, Answer]:
    """Make every method that is compared; with some `chosen`, the graphs of these names only."""
    views, y = rows
    methods: dict[str, Answer] = {}
    for name, values in views.items():
        methods[f"{name}, nearest"] = nearest(values, y)
        if not chosen or f"{name}, graph" in chosen:
            methods[f"{name}, graph"] = Graph({name: values}, y)
    hand = torch.cat([views["colour"], views["edges"]], 1)
    methods["hand, nearest"] = nearest(hand, y)
    for title, names in JOINED.items():
        is_chosen = not chosen or f"joined: {title}" in chosen
        if is_chosen and all(name in views for name in names):
            methods[f"joined: {title}"] = Graph({name: views[name] for name in names}, y)
    return methods


def measure(rows: Rows, per_class: int, draws: int, methods: dict[str, Answer]) -> dict[str, Any]:
    """Errors in per cent of every draw, by method; calibration, and weights of joined views."""
    found: dict[str, Any] = {}
    for name, answer in methods.items():
        errors = []
        sure, right = [], []
        for seed in range(draws):
            chosen = draw(rows.y, per_class, seed)
            rest = np.setdiff1d(np.arange(len(rows.y)), chosen)
            given = answer(chosen)
            classes = given.argmax(1) if given.ndim == 2 else given
            errors.append(100 * float(np.mean(classes[rest] != rows.y[rest])))
            if given.ndim == 2:
                sure.append(given[rest].max(1))
                right.append(classes[rest] == rows.y[rest])
        found[name] = {"errors": [round(error, 2) for error in errors]}
        if sure:
            found[name] |= calibration(np.concatenate(sure), np.concatenate(right))
        if isinstance(answer, Graph) and answer.weights:
            of_draws = answer.weights[-draws:]
            means = {k: float(np.mean([w[k] for w in of_draws])) for k in of_draws[0]}
            found[name]["weights"] = {k: round(value, 2) for k, value in means.items()}
            found[name]["seconds"] = round(float(np.median(answer.seconds[-draws:])), 3)
    return found


def calibration(sure: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """The expected calibration error of ten bins, and the share of wrong ones among those that are
    at least 90 % sure."""
    bins = np.minimum((10 * sure).astype(int), 9)
    used = [bins == number for number in np.unique(bins)]
    gap = sum(part.mean() * abs(sure[part].mean() - right[part].mean()) for part in used)
    top = sure >= 0.9
    wrong = float(1 - right[top].mean()) if top.any() else 0.0
    return {"calibration": round(float(gap), 3), "wrong of the sure": round(wrong, 3)}


def table(results: dict[str, Any]) -> str:
    """The mean errors of each set with 1 / 3 / 10 labels a class."""
    lines = []
    for name, of_set in results.items():
        lines.append(name)
        for method in of_set[str(PER_CLASS[0])]:
            means = [np.mean(of_set[str(count)][method]["errors"]) for count in PER_CLASS]
            weights = of_set[str(PER_CLASS[0])][method].get("weights", "")
            errors = " / ".join(f"{mean:.1f}" for mean in means)
            lines.append(f"    {method:<40} {errors:<20} {weights}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--graphs", nargs="+", default=(), help="these graphs only, by their names")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for file in sorted(options.rows.glob("*.npz")):
        if options.sets and file.stem not in options.sets:
            continue
        rows = read(file)
        methods = answers(rows, options.graphs)
        results[file.stem] = {
            str(count): measure(rows, count, options.draws, methods) for count in PER_CLASS
        }
        print(table({file.stem: results[file.stem]}), flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
