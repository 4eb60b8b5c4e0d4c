"""Time, memory and recall of the graph of many rows, and of its update with one more label.

    python -m benchmarks.labels.many_rows DATA COUNT [COUNT ...] [--out FILE.json] [--cores N]

DATA is a folder with MNIST and Fashion-MNIST (`mnist`, `fashion-mnist`). COUNT rows of 400 columns
are digits and clothes (the training images, or the test images if only these are there), each
shifted by up to four pixels so that most differ, less their mean, in their first 400 principal
directions, of unit length. Peers are the exact search, and PyNNDescent and hnswlib, if they are
installed, with the settings of their documentation, on one core; recall is that of ten neighbours.
The rows are made on all cores; then the program is bound to N of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from whatwhere.classification.cell_index import CellSettings
from whatwhere.classification.neighbours import Neighbours
from whatwhere.progress import no_op

COLUMNS = 400
NEIGHBOURS = 10
SAMPLE = 500  # rows on which recall is measured
RESULTS = Path(__file__).parent / "results" / "many_rows.json"


def rows_and_classes(data: Path, count: int) -> tuple[torch.Tensor, np.ndarray]:
    """Rows [count, 400] and their classes, of which there are 20."""
    pixels, classes = [], []
    which = "train" if list(data.glob("*/train-*")) else "t10k"
    for number, name in enumerate(("mnist", "fashion-mnist")):
        files = [
            data / name / f"{which}-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1")
        ]
        images = ww.data.load(*files)
        pixels.append(torch.as_tensor(images[:])[:, 0])
        classes.append(np.asarray(images.labels).astype(int) + 10 * number)
    known = torch.cat(pixels)
    generator = torch.Generator().manual_seed(0)
    mean = known.flatten(1).mean(0)
    some = known[torch.randperm(len(known), generator=generator)[:20_000]].flatten(1) - mean
    directions = torch.linalg.eigh((some.T @ some).double()).eigenvectors[:, -COLUMNS:].float()
    chosen = torch.randint(len(known), (count,), generator=generator)
    shifts = torch.randint(-4, 5, (count, 2), generator=generator)
    result = torch.empty(count, COLUMNS)
    for shift in shifts.unique(dim=0):
        alike = torch.nonzero((shifts == shift).all(1))[:, 0]
        for part in alike.split(10_000):
            moved = known[chosen[part]].roll(shift.tolist(), (1, 2)).flatten(1)
            result[part] = F.normalize((moved - mean) @ directions, dim=1)
    return result, np.concatenate(classes)[chosen.numpy()]


@contextmanager
def timed(times: dict[str, Any], name: str) -> Iterator[None]:
    """Note the seconds of a part, by the clock and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    times[name] = {
        "seconds": round(time.perf_counter() - wall, 2),
        "processor seconds": round(time.process_time() - processor, 2),
    }
    print(name, times[name], flush=True)


def peak_memory() -> float:
    """The most memory that the program has used, in GB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)


def bind(cores: int | None) -> None:
    """Bind this program to some cores from here on; None leaves all of them."""
    if cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        torch.set_num_threads(cores)


def measure(data: Path, count: int, cores: int | None) -> Iterator[dict[str, Any]]:
    """Measure the graph of so many rows, then labels that change; yield what is known so far."""
    rows, y = rows_and_classes(data, count)
    bind(cores)
    found: dict[str, Any] = {"rows": count, "memory of the rows alone": peak_memory()}
    X = rows.numpy()
    generator = np.random.default_rng(0)
    labelled = [generator.choice(np.flatnonzero(y == label)) for label in range(20)]
    given = np.full(count, -1)
    given[labelled] = y[labelled]

    @contextmanager
    def stage(title: str, total: int) -> Iterator[Callable[[int], None]]:
        with timed(found, title):
            yield no_op

    classifier = ww.GraphClassifier(stage=stage)
    with timed(found, "graph and 20 labels"):
        classifier.fit(X, given)
    index = classifier.neighbours_.index
    if index is not None:
        found |= {"cells": index.cells, "recall": round(index.recall, 4)}
    found["peak memory, GB"] = peak_memory()
    yield found
    others = generator.permutation(count)[:5]
    with timed(found, "first change"):
        given[others[0]] = y[others[0]]
        classifier.refit(given)
    times = []
    for row in others[1:]:
        given[row] = y[row]
        start = time.perf_counter()
        classifier.refit(given)
        times.append(round(time.perf_counter() - start, 2))
    rest = given == -1
    found["one more label, seconds"] = times
    found["error with 25 labels, %"] = round(
        100 * float(np.mean(classifier.transduction_[rest] != y[rest])), 2
    )
    found["peak memory, GB"] = peak_memory()
    yield found


def peers(data: Path, count: int, cores: int | None) -> Iterator[dict[str, Any]]:
    """Measure recall and time of the index of this program, and of others."""
    rows, _ = rows_and_classes(data, count)
    bind(cores)
    X = rows.numpy()
    times: dict[str, Any] = {"rows": count}
    numbers: dict[str, torch.Tensor] = {}
    everything = CellSettings(fewest=count + 1)
    with timed(times, "exact"):
        numbers["exact"] = Neighbours(rows, cells=everything).others(NEIGHBOURS).rows
    with timed(times, "cells"):
        numbers["cells"] = Neighbours(rows).others(NEIGHBOURS).rows
    with suppress(ImportError), timed(times, "pynndescent"):
        from pynndescent import NNDescent

        index = NNDescent(X, n_neighbors=31, random_state=0, n_jobs=1)
        numbers["pynndescent"] = torch.from_numpy(index.neighbor_graph[0][:, 1:]).long()
    with suppress(ImportError), timed(times, "hnswlib"):
        import hnswlib

        graph = hnswlib.Index("l2", COLUMNS)
        graph.init_index(count, M=16, ef_construction=200)
        graph.set_num_threads(1)
        graph.add_items(X)
        graph.set_ef(50)
        labels = graph.knn_query(X, NEIGHBOURS + 1)[0].astype(np.int64)
        numbers["hnswlib"] = torch.from_numpy(labels)[:, 1:]
    sample = torch.from_numpy(np.random.default_rng(0).permutation(count)[:SAMPLE])
    closeness = rows[sample] @ rows.T
    closeness[torch.arange(len(sample)), sample] = -torch.inf
    true = closeness.topk(NEIGHBOURS, dim=1).indices
    for name, of_rows in numbers.items():
        near = of_rows[sample][:, :NEIGHBOURS]
        times[name]["recall"] = round(
            float((true[:, :, None] == near[:, None]).any(2).float().mean()), 4
        )
    yield times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("counts", type=int, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--cores", type=int, help="cores that the program is bound to")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    for count in options.counts:
        name = f"{count}{' peers' if options.peers else ''}"
        for found in (peers if options.peers else measure)(options.data, count, options.cores):
            results[name] = found | {"threads": torch.get_num_threads()}
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(results[name], flush=True)


if __name__ == "__main__":
    main()
