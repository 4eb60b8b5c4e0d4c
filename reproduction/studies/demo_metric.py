"""How many distorted digits does the demo's metric need? By cross-validation on the 5,000 embedded
training digits alone.

    python -m reproduction.studies.demo_metric RUN   # the folder of a demo; adds lines to
    results/demo_metric.jsonl

For every candidate: the errors with 10 and 100 labels of the demo's graph and SVM on a sixth of the
digits, in six turns, with five draws of the labels each, and processor seconds of the metric. The
metric sees no label; the digits that are held out are among those that it may learn from. Test
digits have no part in it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reproduction.few_labels import cross_validation
from whatwhere import data
from whatwhere.app.demo_run import DRAWS, GRAPH_C, LABELS
from whatwhere.classification import Matrix, describe_images, fit_svm
from whatwhere.classification.graph import UNLABELLED, GraphClassifier
from whatwhere.classification.metric import learn_metric
from whatwhere.classification.settings import Distortions
from whatwhere.learning import TrainedRun, read_run

RESULTS = Path(__file__).parent / "results" / "demo_metric.jsonl"
CANDIDATES = ((4, 4), (8, 4))  # every n-th digit is distorted; copies of each


def few_label_errors(z: np.ndarray, y: np.ndarray) -> dict[int, list[float]]:
    """The errors by number of labels, of every turn and draw."""
    errors: dict[int, list[float]] = {}
    for held in cross_validation(y):
        seen = ~held
        graph = GraphClassifier(class_prior="uniform").fit(z[seen], y[seen])
        for count in (each * len(np.unique(y)) for each in LABELS):
            for seed in range(DRAWS):
                labelled = data.few_labels(y[seen], count, seed)
                given = np.full(int(seen.sum()), UNLABELLED)
                given[labelled] = y[seen][labelled]
                svm = fit_svm(z[seen], graph.refit(given).transduction_, GRAPH_C)
                wrong = svm.predict(z[held]) != y[held]
                errors.setdefault(count, []).append(float(wrong.mean()))
    return errors


def measure(run: TrainedRun, x: Matrix, share: int, copies: int) -> dict[str, Any]:
    digits = data.load("digits")
    chosen = np.arange(0, len(digits), share)
    start = time.process_time()
    metric = learn_metric(
        run.model,
        digits.subset(chosen),
        run.recipe,
        Distortions(copies=copies),
        described=x[chosen],
    )
    seconds = time.process_time() - start
    errors = few_label_errors(metric(x).numpy(), np.asarray(digits.labels))
    means = {str(count): float(np.mean(values)) for count, values in errors.items()}
    about = {"share": share, "copies": copies, "metric_seconds": seconds}
    return {**about, "means": means, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    torch.set_num_threads(1)
    run = read_run(parser.parse_args().run)
    x = describe_images(run.model, data.load("digits"), run.recipe)
    for share, copies in CANDIDATES:
        line = json.dumps(measure(run, x, share, copies))
        print(line[:120], flush=True)
        with RESULTS.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
