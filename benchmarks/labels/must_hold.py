"""Errors of one version of the package with few labels, draw by draw, to see that nothing is lost.

    PYTHONPATH=VERSION/src python -m benchmarks.labels.must_hold VERSION SET DATA OUT.jsonl

Run it for two versions. SET is `mnist` or `fashion` (DATA holds the IDX files, gzip or xz: all
training images are in the graph, test images join it), or the name of a ZIP file in DATA with a
folder for each class, such as `steel`. Models, rows and graphs are those of the version. Results
are appended; with an Omniglot file, `benchmarks.labels.one_example --test` does the same for one
example of each class.
"""

import gzip
import json
import lzma
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whatwhere as ww
from whatwhere.classification.picture_classifier import describe_pictures
from whatwhere.classification.settings import Distortions
from whatwhere.data import few_labels
from whatwhere.progress import no_stage
from whatwhere.spec.execution import Execution

DRAWS = 10
LEARNED = ("textures", "shapes")  # columns of learned features
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def idx_file(file: Path) -> np.ndarray:
    raw = file.read_bytes()
    raw = lzma.decompress(raw) if file.suffix == ".xz" else gzip.decompress(raw)
    dims = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def images_and_labels(data: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    (images,) = data.glob(f"{part}-images*")
    labels = idx_file(data / f"{part}-labels-idx1-ubyte.gz").astype(int)
    return idx_file(images).copy(), labels


def run_of(name: str) -> Any:
    """The model `mnist` with its learned steps, or another model of the package."""
    if name != "mnist":
        return ww.learning.read_run(name)
    model = ww.load("mnist")
    assert model.source is not None
    steps = ww.LearnedSteps.load(model.source)
    recipe = replace(ww.Recipe.paper(), inference=steps.spec, plan=())
    return ww.learning.TrainedRun("mnist", recipe, steps.model_for(model))


def rows_of_images(name: str, data: Path) -> dict[str, np.ndarray]:
    """The rows of all training images and of test images, and their classes; made once, so that
    versions that are compared have the same rows."""
    kept = data / f"{name}.rows.npz"
    if not kept.exists():
        images, labels = images_and_labels(data, "train")
        new, new_labels = images_and_labels(data, "t10k")
        pictures = ww.data.load(images)
        some = pictures.subset(np.linspace(0, len(pictures) - 1, 1000).astype(int))
        options = Execution(device=DEVICE)
        describe, _ = describe_pictures(some, run_of(name), Distortions(), options, None, no_stage)
        starts = range(0, len(pictures), 5000)
        parts = [pictures.subset(range(i, min(i + 5000, len(pictures)))) for i in starts]
        rows = torch.cat([describe(part).float().cpu() for part in parts]).numpy()
        new_rows = describe(ww.data.load(new)).float().cpu().numpy()
        np.savez(kept, rows=rows, labels=labels, new_rows=new_rows, new_labels=new_labels)
    return dict(np.load(kept))


def of_images(name: str, data: Path) -> Iterator[dict[str, Any]]:
    """Errors in the graph of all training images, and of test images, in %."""
    described = rows_of_images(name, data)
    rows, labels = described["rows"], described["labels"]
    graph = ww.GraphClassifier().fit(rows, labels)
    for draw in range(DRAWS):
        for prior, count in ((None, 10), ("uniform", 10), (None, 100), ("uniform", 100)):
            given = np.full(len(labels), -1)
            chosen = few_labels(labels, count, draw)
            given[chosen] = labels[chosen]
            graph.class_prior = prior
            start = time.time()
            graph.refit(given)
            seconds = round(time.time() - start, 2)
            rest = given == -1
            wrong = 100 * float(np.mean(graph.transduction_[rest] != labels[rest]))
            found = graph.predict(described["new_rows"])
            of_new = 100 * float(np.mean(found != described["new_labels"]))
            line = {"prior": prior, "labels": count, "draw": draw, "seconds": seconds}
            yield line | {"graph": round(wrong, 3), "new": round(of_new, 3)}


def rows_of(session: Any) -> dict[str, tuple[np.ndarray, dict[str, int] | None]]:
    """The rows that a session describes pictures by, and their views; learned ones alone, too."""
    if not hasattr(session, "description"):  # an early version, with one view
        return {"default": (np.asarray(session.rows, np.float32), None)}
    columns = dict(session.description.columns)
    rows = np.asarray(session.description.rows, np.float32)
    ends = np.cumsum(list(columns.values()))
    own = {name: columns[name] for name in columns if name in LEARNED}
    places = zip(columns, ends, strict=True)
    kept = [rows[:, end - columns[name] : end] for name, end in places if name in own]
    return {"default": (rows, columns), "own": (np.concatenate(kept, 1), own)}


def of_folder(name: str, data: Path) -> Iterator[dict[str, Any]]:
    """Errors on a half of the pictures of a folder; the model and the graph see all of them."""
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(data / f"{name}.zip").extractall(folder)
        images = ww.data.load(folder)
        y = np.unique(np.asarray(images.labels), return_inverse=True)[1]
        session = ww.Labelling(images, options=Execution(device=DEVICE))
    yield from errors_of(rows_of(session), y)


def errors_of(
    described: dict[str, tuple[np.ndarray, dict[str, int] | None]], y: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Errors by rows of some kinds, of pictures whose classes are y."""
    order = np.random.default_rng(0).permutation(len(y))
    test = np.sort(order[len(y) // 2 :])
    for kind, (rows, columns) in described.items():
        views = {"views": columns} if columns and len(columns) > 1 else {}
        graph = ww.GraphClassifier(**views).fit(rows, np.zeros(len(y)))
        for per_class in (1, 3, 10):
            for draw in range(DRAWS):
                chosen = test[few_labels(y[test], per_class * (int(y.max()) + 1), draw)]
                rest = np.setdiff1d(test, chosen)
                given = np.full(len(y), -1)
                given[chosen] = y[chosen]
                graph.refit(given)
                wrong = 100 * float(np.mean(graph.transduction_[rest] != y[rest]))
                line = {"rows": kind, "per_class": per_class, "draw": draw}
                yield line | {"error": round(wrong, 3)}


def main() -> None:
    version, name, data, out = sys.argv[1:]
    warnings.simplefilter("ignore", UserWarning)
    measured = of_images if name in ("mnist", "fashion") else of_folder
    for line in measured(name, Path(data)):
        with Path(out).open("a") as file:
            file.write(json.dumps({"version": version, "set": name} | line) + "\n")


if __name__ == "__main__":
    main()
