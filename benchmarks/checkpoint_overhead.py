"""What a checkpoint costs, as a share of an epoch: the paper's layer 2 on the embedded digits,
latents in RAM.

    python benchmarks/checkpoint_overhead.py [--images 5000] [--steps 100]

Latents are written by a thread while the next batches are inferred. Two numbers bound the overhead
of a checkpoint: `waited`, the time training stood still for it, and `waited + writing`, as if the
writing had hidden behind nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from log import Log
from machine import machine

from whatwhere.data import load
from whatwhere.learning import TrainingCallbacks, TrainingOptions, train
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.run_folder import RunFolder
from whatwhere.spec import Recipe

RESULTS = Log("checkpoint_overhead")


def timed(function: Callable[..., Any], spans: list[float]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments, **keywords)
        spans.append(time.perf_counter() - start)
        return result

    return wrapped


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--engine", default="auto")
    given = parser.parse_args()
    recipe = Recipe.paper()
    first, second = recipe.learning
    # the last epoch of a run is followed by no checkpoint of latents, so the first of two is the
    # one that is measured
    second = replace(second, epochs=2, inference=replace(second.inference, steps=given.steps))
    recipe = replace(recipe, learning=(replace(first, epochs=0), second))
    waited: list[float] = []
    written: list[float] = []
    RunFolder.save = timed(RunFolder.save, waited)  # type: ignore[method-assign]
    LatentStore._write_file = timed(LatentStore._write_file, written)  # type: ignore[method-assign]

    class Enough(Exception):
        """The second epoch has nothing to add."""

    def end(report: Any) -> None:
        if len(waited) > 1:
            raise Enough

    epochs = []
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Enough):
        train(
            load("digits")[: given.images],
            recipe,
            Path(folder) / "run",
            options=TrainingOptions(
                store="memory", engine=given.engine, device="cpu", checkpoint_every=1
            ),
            callbacks=TrainingCallbacks(on_epoch=epochs.append, on_batch=end),
        )
    epoch = epochs[0]
    result = {
        "machine": machine(),
        "images": epoch.images,
        "steps": epoch.steps,
        "engine": epoch.engine,
        "epoch_seconds": round(epoch.seconds, 2),
        # the first checkpoint, of the start, holds no latents
        "waited_seconds": round(waited[1], 2),
        "writing_seconds": round(sum(written), 2),
        "megabytes": round(epoch.images * 40384 * 4 / 1e6),
        "share_waited": round(waited[1] / epoch.seconds, 4),
        "share_waited_and_writing": round((waited[1] + sum(written)) / epoch.seconds, 4),
    }
    print(json.dumps(result, indent=2))
    RESULTS.write(result)


if __name__ == "__main__":
    main()
