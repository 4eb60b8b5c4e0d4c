"""Errors with few labels on the test halves of steel surfaces and blood cells, by the defaults.

    whatwhere train steel --out steel.run
    python -m benchmarks.labels.any_folder_test steel steel.run results/any_folder_steel.json

The model and the graph see all pictures without labels. Labels are drawn from the test half, ten
times; errors are counted on the rest of that half.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.svm import LinearSVC

import whatwhere as ww
from benchmarks.labels.any_folder import calibration_error
from benchmarks.labels.any_folder_rows import half_of
from whatwhere.classification.picture_classifier import describe_pictures
from whatwhere.classification.settings import Distortions
from whatwhere.data import few_labels
from whatwhere.progress import no_stage
from whatwhere.spec.execution import Execution

PER_CLASS = (1, 3, 10)
DRAWS = 10


def errors_of_draw(
    graph: ww.GraphClassifier, rows: np.ndarray, y: np.ndarray, per_class: int, seed: int
) -> dict[str, float]:
    """Errors in % of one draw: the graph, the nearest label, a linear classifier; calibration."""
    test = half_of(len(y), "test")
    chosen = test[few_labels(y[test], per_class * (int(y.max()) + 1), seed)]
    rest = np.setdiff1d(test, chosen)
    given = np.full(len(y), -1)
    given[chosen] = y[chosen]
    graph.refit(given)
    shares = graph.label_distributions_[rest]
    nearest = y[chosen][(rows[rest] @ rows[chosen].T).argmax(1)]
    linear = LinearSVC(C=1).fit(rows[chosen], y[chosen]).predict(rows[rest])
    return {
        "graph": 100 * float(np.mean(shares.argmax(1) != y[rest])),
        "calibration": 100 * calibration_error(shares, y[rest]),
        "estimate": 100 * float(np.mean(1 - shares.max(1))),
        "nearest": 100 * float(np.mean(nearest != y[rest])),
        "linear": 100 * float(np.mean(linear != y[rest])),
    }


def main() -> None:
    folder, run, out = sys.argv[1:]
    torch.set_num_threads(2)
    images = ww.data.load(folder)
    y = np.asarray(images.labels)
    start = time.time()
    processor = time.process_time()
    described, found = describe_pictures(
        images, ww.read_run(run), Distortions(), Execution(device="cpu"), None, no_stage
    )
    result: dict[str, object] = {
        "why": described.why,
        "seconds": round(time.time() - start, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "shape": list(found.shape),
    }
    rows = found.numpy()
    graph = ww.GraphClassifier().fit(rows, np.zeros(len(y)))
    for per_class in PER_CLASS:
        draws = [errors_of_draw(graph, rows, y, per_class, seed) for seed in range(DRAWS)]
        result[f"{per_class} a class"] = {
            name: [round(draw[name], 2) for draw in draws] for name in draws[0]
        }
        Path(out).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
