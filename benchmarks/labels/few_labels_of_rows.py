"""Errors with few labels on given rows, by the `GraphClassifier` of whatever version is imported.

    PYTHONPATH=VERSION/src python -m benchmarks.labels.few_labels_of_rows ROWS.npz --out FILE.json
    [--device cuda]

`few_labels_tables.py` makes the rows and calls this file once for each version, so that versions
are compared on the same numbers. It imports nothing but public names that all versions have.

ROWS.npz holds `rows` and `labels` of the images in the graph, `new_rows` and `new_labels` of the
images that join it later.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

import whatwhere as ww

DRAWS = 10
COUNTS = (10, 50, 100)
PRIORS = {"no prior": None, "uniform": "uniform"}


def draw(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Labels (n,) of which all but `count` are -1."""
    chosen = ww.data.few_labels(labels, count, seed)
    given = np.full(len(labels), -1)
    given[chosen] = labels[chosen]
    return given


def percent(wrong: np.ndarray) -> float:
    return round(100 * float(np.mean(wrong)), 3)


def errors_of(kept: dict[str, np.ndarray], device: str) -> dict[str, dict[str, object]]:
    """Errors in % of every draw, by prior and number of labels: of new rows, and of the graph's."""
    labels = kept["labels"]
    rows = kept["rows"].astype(np.float32)
    new_rows = kept["new_rows"].astype(np.float32)
    found: dict[str, dict[str, object]] = {}
    graph = ww.GraphClassifier(device=device).fit(rows, labels)
    for name, prior in PRIORS.items():
        graph.class_prior = prior
        for count in COUNTS:
            start = time.perf_counter()
            new = []
            known = []
            for seed in range(DRAWS):
                given = draw(labels, count, seed)
                graph.refit(given)
                new.append(percent(graph.predict(new_rows) != kept["new_labels"]))
                rest = given == -1
                known.append(percent(graph.transduction_[rest] != labels[rest]))
            found[f"{name}, {count}"] = {
                "new": new,
                "graph": known,
                "mean": round(float(np.mean(new)), 3),
                "deviation": round(float(np.std(new)), 3),
                "mean of the graph": round(float(np.mean(known)), 3),
                "seconds": round(time.perf_counter() - start, 1),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    kept = dict(np.load(options.rows))
    options.out.write_text(json.dumps(errors_of(kept, options.device), indent=1) + "\n")


if __name__ == "__main__":
    main()
