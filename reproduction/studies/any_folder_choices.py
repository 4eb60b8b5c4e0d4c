"""How much places count in rows, and whether regions settle: compared on pools that no result is
reported of.

    python -m reproduction.studies.any_folder_rows DATA ROWS --half validation --kinds both
    python -m reproduction.studies.any_folder_choices ROWS --out FILE.json [--seconds 120]

Rows of what is anywhere and of what is at a place stand side by side. Here the latter count from
not at all to alone. For every draw: the errors in % of Poisson learning, of regions that settle in
some rounds without a bound, and the largest factor by which the size of a class changes in them.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import whatwhere as ww
from reproduction.studies.any_folder import DRAWS, PER_CLASS, Log, draw
from whatwhere.classification import poisson
from whatwhere.classification.poisson import grow_regions, poisson_learning, tau_for

ANYWHERE = 48  # columns of what is anywhere: 16 maps at three scales
WEIGHTS = (0.0, 0.3, 0.5, 0.7, 0.85, 1.0)  # share of what is at a place in squared distances
ROUNDS = (1, 5)


class Choice(NamedTuple):
    """A weight for the rows of a file."""

    file: str
    weight: float

    @property
    def key(self) -> str:
        return f"{Path(self.file).stem.removesuffix(', both')}, {self.weight:g}"


def weighted(rows: np.ndarray, weight: float) -> np.ndarray:
    """Rows in which what is at a place counts with a weight from 0 to 1."""
    anywhere = rows[:, :ANYWHERE]
    place = rows[:, ANYWHERE:]
    anywhere = anywhere / np.linalg.norm(anywhere, axis=1, keepdims=True)
    place = place / np.linalg.norm(place, axis=1, keepdims=True)
    return np.concatenate([(1 - weight) ** 0.5 * anywhere, weight**0.5 * place], 1)


def percent(scores: torch.Tensor, y: np.ndarray, rest: np.ndarray) -> float:
    return round(100 * float(np.mean(scores.argmax(1).numpy()[rest] != y[rest])), 3)


def size_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """The largest factor by which the number of rows of a class changes."""
    classes = before.shape[1]
    sizes = [scores.argmax(1).bincount(minlength=classes) + 1.0 for scores in (before, after)]
    return round(float((sizes[1] / sizes[0]).log().abs().max().exp()), 3)


def errors_of_draw(
    graph: ww.GraphClassifier, y: np.ndarray, chosen: np.ndarray
) -> dict[str, float]:
    rest = np.setdiff1d(np.arange(len(y)), chosen)
    names, labels = np.unique(y[chosen], return_inverse=True)
    # classes without a label are wrong, whatever is said of them
    truth = np.where(np.isin(y, names), np.searchsorted(names, y).clip(max=len(names) - 1), -1)
    rows = torch.from_numpy(chosen)
    even = torch.full((len(names),), 1 / len(names), dtype=torch.float64)
    assert graph.graph_ is not None
    tau = tau_for(len(rows), len(y))
    u = poisson_learning(graph.graph_, rows, torch.from_numpy(labels), even, tau=tau)
    found = {"potentials": percent(u, truth, rest)}
    for rounds in ROUNDS:
        poisson.ROUNDS = rounds
        regions = grow_regions(
            graph.graph_, graph.parts_, u, rows, torch.from_numpy(labels), torch.zeros_like(even)
        )
        found[f"{rounds} rounds"] = percent(regions, truth, rest)
        found[f"{rounds} rounds, change"] = size_change(u, regions)
    return found


def compare(job: Choice) -> tuple[str, dict[str, Any]]:
    """All draws of one to ten labels a class."""
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    kept = np.load(job.file)
    _, y = np.unique(kept["y"], return_inverse=True)
    rows = weighted(kept["rows"], job.weight).astype(np.float32)
    graph = ww.GraphClassifier().fit(rows, y)
    found: dict[str, Any] = {"why": str(kept["why"])}
    for per_class in PER_CLASS:
        for balanced in (True, False):
            draws = [draw(y, per_class, seed, balanced) for seed in range(DRAWS)]
            each = [errors_of_draw(graph, y, chosen) for chosen in draws]
            kind = "balanced" if balanced else "random"
            found[f"{per_class} {kind}"] = {name: [e[name] for e in each] for name in each[0]}
    return job.key, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args()
    files = sorted(options.rows.glob("*, both.npz"), key=lambda file: file.stat().st_size)
    jobs = [Choice(str(file), weight) for file in files for weight in WEIGHTS]
    Log(options.out, options.seconds).run("choices", compare, jobs, options.processes)


if __name__ == "__main__":
    main()
