"""Memory of a stream of pictures through training, codes and descriptors.

    python -m benchmarks.memory.streamed OUT.json [--counts 1000 10000 100000]

Pictures of 28 × 28 are made as they are needed: digits of the package, moved and scaled at random,
with noise. Each count has a process of its own, which trains a model of two layers from the stream
(layer 1 learns from the first half, layer 2 from the rest), and then encodes and describes all
pictures batch by batch, as the workers of Ray do; codes and rows go to files. The largest memory of
the process after each part is reported, with the pictures of a second.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.ray_data import Describe, Encode
from whatwhere.spec import EveryBatch, InferenceSpec, LearningSpec, LineSearch

BATCH = 500


def pictures(count: int) -> Iterator[np.ndarray]:
    """Yield batches of pictures [n, 28, 28], uint8."""
    digits = (ww.data.load("digits")[:1000][:, 0].numpy() * 255).astype(np.float32)
    random = np.random.default_rng(0)
    for first in range(0, count, BATCH):
        batch = digits[random.integers(0, len(digits), min(BATCH, count - first))]
        moved = np.roll(batch, random.integers(-3, 4, 2), (1, 2))
        scale = random.uniform(0.6, 1, (len(batch), 1, 1))
        noisy = scale * moved + random.normal(0, 8, batch.shape)
        yield noisy.clip(0, 255).astype(np.uint8)


def train(count: int, run: Path) -> None:
    """Train a model of two layers from the stream."""
    layers = (
        ww.LayerSpec(maps=8, filter_size=5, pool_size=2),
        ww.LayerSpec(maps=16, filter_size=5, pool_size=2),
    )
    inference = InferenceSpec(lam=5.0, steps=10, step=LineSearch(per="image"))
    learning = LearningSpec(inference=inference, update=EveryBatch(), epochs=1, cg_steps=1)
    recipe = ww.Recipe(
        model=ww.ModelSpec(layers=layers),
        learning=(learning, learning),
        inference=inference,
        batch_size=BATCH,
    )
    stream = (torch.from_numpy(batch) for batch in pictures(count))
    ww.train(stream, recipe, run, image_count=count // 2)


def encode(count: int, run: Path) -> None:
    """Encode all pictures; a file for each batch."""
    worker = Encode(run, InferenceSpec(lam=5.0, steps=10), where=True, device="cpu")
    for number, batch in enumerate(pictures(count)):
        codes = worker({"image": batch})
        columns = {name: np.concatenate([np.ravel(row) for row in codes[name]]) for name in codes}
        np.savez(run.parent / f"codes-{number % 10}.npz", **columns)


def describe(count: int, run: Path) -> None:
    """Describe all pictures; the rows of the last batches stay on disk."""
    worker = Describe(run, device="cpu")
    for number, batch in enumerate(pictures(count)):
        rows = worker({"image": batch})["descriptor"]
        np.save(run.parent / f"rows-{number % 10}.npy", rows)


def measure(count: int) -> dict[str, dict[str, float]]:
    """Return the largest memory and the speed of each part."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        for part in (train, encode, describe):
            began = time.perf_counter()
            part(count, run)
            seconds = time.perf_counter() - began
            largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            found[part.__name__] = {
                "largest_MB": round(largest / 1024, 1),
                "seconds": round(seconds, 1),
                "pictures_a_second": round(count / seconds),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--counts", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    given = parser.parse_args()
    results: dict[str, object] = {"machine": machine(), "threads": torch.get_num_threads()}
    for count in given.counts:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            results[str(count)] = process.submit(measure, count).result()
        given.out.write_text(json.dumps(results, indent=1) + "\n")
        print(count, results[str(count)], flush=True)


if __name__ == "__main__":
    main()
