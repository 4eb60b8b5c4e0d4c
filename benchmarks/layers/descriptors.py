"""Descriptors of digits next to kymatio's scattering: processor time, and errors with 100 labels.

    WHATWHERE_DATA=FOLDER python -m benchmarks.layers.descriptors [--kymatio PYTHON] [--out FILE]

FOLDER is the one of `whatwhere download mnist`. PYTHON is an interpreter with kymatio 0.3, torch
and SciPy < 1.17.
One thread; the processor time of 1,000 digits, the best of three, after one call that is not
measured. Errors: a linear SVM on 100 labelled digits (10 of each class, from the first 10,000
training digits) and all 10,000 test digits, ten draws; three-fold cross-validation chooses C among
1, 10 and 100. Rows have unit length.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.classification import describe_images

LABELS = 100
SCATTERING = """
import json, sys, time
import numpy as np, torch
from kymatio.torch import Scattering2D
torch.set_num_threads(1)
folder, J = sys.argv[1], int(sys.argv[2])
transform = Scattering2D(J=J, L=8, max_order=2, shape=(28, 28))
def rows(v):
    with torch.no_grad():
        return torch.cat([transform(part.contiguous()).flatten(1) for part in v.split(1000)])
images = torch.from_numpy(np.load(folder + "/images.npy"))
rows(images[:100])
seconds = []
for _ in range(3):
    began = time.process_time()
    rows(images[:1000])
    seconds.append(time.process_time() - began)
np.save(folder + "/rows.npy", rows(images).numpy())
print(json.dumps(min(seconds)))
"""


def ours(images: torch.Tensor, steps: str | int) -> tuple[np.ndarray, float]:
    """Return the descriptors, and the processor seconds of 1,000 of them."""
    model = ww.load("mnist")
    describe_images(model, images[:100], steps=steps, engine="cpu")
    seconds = []
    for _ in range(3):
        began = time.process_time()
        describe_images(model, images[:1000], steps=steps, engine="cpu")
        seconds.append(time.process_time() - began)
    return np.asarray(describe_images(model, images, steps=steps, engine="cpu")), min(seconds)


def scattering(images: torch.Tensor, J: int, python: str) -> tuple[np.ndarray, float]:
    """Return the scattering coefficients of an interpreter that has kymatio, and the same time."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/images.npy", images[:, 0].numpy())
        command = [python, "-c", SCATTERING, folder, str(J)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return np.load(f"{folder}/rows.npy"), float(json.loads(done.stdout.splitlines()[-1]))


def errors(rows: np.ndarray, labels: np.ndarray, draws: list[np.ndarray], test: int) -> list[float]:
    """Return the test errors in percent, one for each draw; the last `test` rows are the test."""
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    found = []
    for chosen in draws:
        search = GridSearchCV(LinearSVC(), {"C": [1, 10, 100]}, cv=3)
        search.fit(rows[chosen], labels[chosen])
        found.append(100 * float((search.predict(rows[-test:]) != labels[-test:]).mean()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kymatio", help="an interpreter that has kymatio")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/layers/results/descriptors.json")
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    training = ww.data.load("mnist").subset(np.arange(10_000))
    test = ww.data.load("mnist", split="test")
    chosen = [ww.data.few_labels(training.labels, LABELS, seed) for seed in range(given.draws)]
    used = np.unique(np.concatenate(chosen))  # only these are described
    draws = [np.searchsorted(used, rows) for rows in chosen]
    images = torch.cat([training.subset(used)[:], test[:]])
    labels = np.concatenate([training.labels[used], test.labels])
    methods = {
        "learned steps": lambda: ours(images, "learned"),
        "50 plain steps": lambda: ours(images, 50),
        "10 plain steps": lambda: ours(images, 10),
    }
    if given.kymatio:
        for J in (2, 3):
            methods[f"kymatio, J = {J}"] = lambda J=J: scattering(images, J, given.kymatio)
    found = {"machine": machine(), "labels": LABELS, "draws": given.draws, "methods": {}}
    for name, rows_of in methods.items():
        rows, seconds = rows_of()
        each = errors(rows, labels, draws, len(test))
        found["methods"][name] = {
            "columns": rows.shape[1],
            "milliseconds_a_digit": round(seconds, 3),
            "errors": [round(error, 2) for error in each],
            "mean_error": round(float(np.mean(each)), 2),
            "deviation": round(float(np.std(each, ddof=1)), 2) if len(each) > 1 else None,
        }
        print(name, found["methods"][name], flush=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
