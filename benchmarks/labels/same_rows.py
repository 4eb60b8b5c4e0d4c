"""Errors of two versions on the same 60,000 rows of MNIST, draw by draw, to see that nothing is
lost.

    PYTHONPATH=VERSION/src python -m benchmarks.labels.same_rows KNOWN.npz NEW.npz --out FILE.jsonl

KNOWN.npz and NEW.npz hold `rows` and `labels` of the images in the graph and of new ones: the
included model `mnist` with learned steps, and the metric of 1,000 distorted pictures, which
describe both versions' images alike. A line is written after every fit, so that a run that is
stopped keeps what it has.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np

import whatwhere as ww

CASES = (("no prior", None, 10), ("uniform", "uniform", 10), ("no prior", None, 100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("known", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    known = np.load(options.known)
    new = np.load(options.new)
    rows, labels = known["rows"].astype(np.float32), known["labels"]
    new_rows, new_labels = new["rows"].astype(np.float32), new["labels"]
    graph = ww.GraphClassifier()
    for draw in range(options.draws):
        for name, prior, count in CASES:
            chosen = ww.data.few_labels(labels, count, draw)
            given = np.full(len(labels), -1)
            given[chosen] = labels[chosen]
            graph.class_prior = prior
            graph = graph.refit(given) if hasattr(graph, "classes_") else graph.fit(rows, given)
            rest = given == -1
            found = {
                "rows": len(rows),
                "prior": name,
                "labels": count,
                "draw": draw,
                "error in the graph": 100 * np.mean(graph.transduction_[rest] != labels[rest]),
                "error of new rows": 100 * np.mean(graph.predict(new_rows) != new_labels),
            }
            with options.out.open("a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
