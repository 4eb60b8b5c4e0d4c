"""Anomalies: digits of a class that was not known, compared with other methods on pixels.

    python benchmarks/anomaly.py choose             # settings of the others, on training digits of two classes
    python benchmarks/anomaly.py digits [CLASSES]   # each class in turn unknown: AUROC on the test digits

Nine classes of the first 2,000 training digits are known. The detector learns a model of one layer from them, in a
stream; its settings (1 neighbour, no residual) were chosen on training digits with 4 unknown. Results are kept in
benchmarks/results/anomaly.json, each class as it ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import OneClassSVM

import whatwhere as ww
from whatwhere.anomaly.detector import streaming_recipe
from whatwhere.inference import machine

RESULTS = Path(__file__).parent / "results" / "anomaly.json"
VALIDATION_CLASSES = (4, 7)
NORMAL = 2000  # training digits, before the unknown ones are taken out
Score = Callable[[np.ndarray, np.ndarray], np.ndarray]  # normal images, images → how anomalous each is


def isolation_forest(trees: int) -> Score:
    return lambda normal, x: -IsolationForest(n_estimators=trees, random_state=0).fit(normal).score_samples(x)


def one_class_svm(nu: float, gamma: Any) -> Score:
    return lambda normal, x: -OneClassSVM(nu=nu, gamma=gamma).fit(normal).score_samples(x)


def pca(components: int) -> Score:
    def score(normal: np.ndarray, x: np.ndarray) -> np.ndarray:
        plane = PCA(components, random_state=0).fit(normal)
        return np.square(x - plane.inverse_transform(plane.transform(x))).sum(1)

    return score


def neighbours(count: int) -> Score:
    return lambda normal, x: NearestNeighbors(n_neighbors=count).fit(normal).kneighbors(x)[0].mean(1)


BASELINES: dict[str, dict[str, Score]] = {
    "isolation forest": {f"{n} trees": isolation_forest(n) for n in (100, 300)},
    "one-class SVM": {f"nu {nu}, gamma {g}": one_class_svm(nu, g) for nu in (0.01, 0.1) for g in ("scale", 0.05)},
    "PCA reconstruction": {f"{n} components": pca(n) for n in (20, 50, 100, 200)},
    "nearest neighbours": {f"{k} neighbours": neighbours(k) for k in (1, 3, 10)},
}


def auroc(unknown: np.ndarray, anomaly: np.ndarray) -> float:
    return round(float(roc_auc_score(unknown, anomaly)), 4)


# Digits ------------------------------------------------------------------------------------------------------


def digits_of(split: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    images = ww.data.load("digits", split=split)
    assert images.labels is not None
    return images[:count].numpy()[:, 0], images.labels[:count]


def choose_baselines() -> dict[str, Any]:
    """Settings by the mean AUROC over two classes, each unknown in turn: four fifths of the others are known."""
    x, y = digits_of("train", NORMAL)
    validation = np.arange(len(x)) % 5 == 0
    chosen = {}
    for name, settings in BASELINES.items():
        means = {}
        for setting, score in settings.items():
            found = []
            for unknown in VALIDATION_CLASSES:
                rows = validation | (y == unknown)
                flat = x.reshape(len(x), -1)
                found.append(auroc(y[rows] == unknown, score(flat[~rows], flat[rows])))
            means[setting] = round(float(np.mean(found)), 4)
        chosen[name] = {"validation": means, "setting": max(means, key=means.__getitem__)}
        print(name, chosen[name], flush=True)
    return chosen


def one_layer() -> ww.Recipe:
    recipe = streaming_recipe(ww.ModelSpec(layers=ww.ModelSpec.paper().layers[:1]))
    return replace(recipe, descriptor=ww.DescriptorSpec(stride=(3,)))


def unknown_class(unknown: int, chosen: dict[str, Any]) -> dict[str, Any]:
    """AUROC on the test digits of every method that knows nine classes."""
    x, y = digits_of("train", NORMAL)
    x_test, y_test = digits_of("test", 2000)
    normal, row = x[y != unknown], {}
    start = time.process_time()
    detector = ww.AnomalyDetector(recipe=one_layer()).fit(normal)
    score, _ = detector.decision_and_map(x_test)
    row["whatwhere"], seconds = auroc(y_test == unknown, -score), time.process_time() - start
    for name, choice in chosen.items():
        score = BASELINES[name][choice["setting"]](normal.reshape(len(normal), -1), x_test.reshape(len(x_test), -1))
        row[name] = auroc(y_test == unknown, score)
    return {"unknown": unknown, "processor_seconds": round(seconds, 1), "auroc": row}


def main(part: str, numbers: list[int]) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = machine()
    if part == "choose":
        results["chosen"] = choose_baselines()
    if part == "digits":
        for unknown in numbers or range(10):
            row = unknown_class(unknown, results["chosen"])
            print(row, flush=True)
            results = json.loads(RESULTS.read_text())  # another process may have added rows
            results.setdefault("digits", {})[str(unknown)] = row
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], [int(number) for number in sys.argv[2:]])
