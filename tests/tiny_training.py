"""A training so small that it takes a fraction of a second, and the processes that tests start,
kill and resume."""

import encodings.cp437  # noqa: F401, zipfile looks it up: a process that becomes another user may not read it
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from whatwhere.engines.reference import ReferenceEngine
from whatwhere.learning import TrainedRun, TrainingCallbacks, TrainingOptions
from whatwhere.learning import train as train_model
from whatwhere.learning.checkpoint import has_checkpoint
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import (
    EveryBatch,
    EveryEpoch,
    InferenceSpec,
    LayerSpec,
    LearningSpec,
    LineSearch,
    ModelSpec,
    Recipe,
)
from whatwhere.spec.penalty import Power

# The process that the others are forked from finds this file by PYTHONPATH alone.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
)
FORKS = multiprocessing.get_context("forkserver")
OPTIONS = TrainingOptions(engine="reference", device="cpu")  # nothing to compile in every process
CALLBACKS = ("stop", "on_batch", "on_epoch")
FORKS.set_forkserver_preload(["tiny_training", "programs", "pytest"])


class WatchedEngine(ReferenceEngine):
    """The reference, whose solutions and filter maps pass a function of a test; trainings of a test
    use it as `ENGINES["reference"]`."""

    def __init__(
        self,
        solution: Callable[[Problem, Solution], Solution | None] = lambda problem, solution: None,
        filter_map: Callable[[Any], Any] = lambda linear_map: linear_map,
    ) -> None:
        self.of_solution = solution
        self.of_filter_map = filter_map

    def solve(self, problem: Problem) -> Solution:
        solution = super().solve(problem)
        return self.of_solution(problem, solution) or solution

    def filter_map(self, *arguments: Any, **keywords: Any) -> Any:
        return self.of_filter_map(super().filter_map(*arguments, **keywords))


def recipe(epochs: int = 2, batch_size: int = 2, **inference: Any) -> Recipe:
    """Two layers, with a reset after the first epoch of each."""
    model = ModelSpec(
        layers=(LayerSpec(maps=2, filter_size=2), LayerSpec(maps=3, filter_size=2, fan_in=1))
    )
    settings = {
        "lam": 2.0,
        "penalty": Power(alpha=0.5),
        "steps": 2,
        "step": LineSearch(per="batch"),
        **inference,
    }
    learning = LearningSpec(
        inference=InferenceSpec(**settings), epochs=epochs, update=EveryEpoch(reset_at=(1,))
    )
    return Recipe(model=model, learning=(learning, learning), batch_size=batch_size)


def stream_recipe(epochs: int = 2, batch_size: int = 2, **inference: Any) -> Recipe:
    """The same with filters that are updated after every batch."""
    by_epoch = recipe(epochs, batch_size, step=LineSearch(), **inference)
    learning = (replace(layer, update=EveryBatch()) for layer in by_epoch.learning)
    return replace(by_epoch, learning=tuple(learning))


def train(
    recipe: Recipe,
    images: Any,
    out: Path | None = None,
    *,
    resume: bool = False,
    start: DeconvNet | None = None,
    image_count: int | None = None,
    **keywords: Any,
) -> TrainedRun:
    """`whatwhere.train` on the CPU by the reference; options and callbacks are given by their
    names."""
    callbacks = TrainingCallbacks(
        **{name: keywords.pop(name) for name in CALLBACKS if name in keywords}
    )
    options = replace(OPTIONS, **keywords)
    return train_model(
        images,
        recipe,
        out,
        image_count=image_count,
        resume=resume,
        start=start,
        options=options,
        callbacks=callbacks,
    )


class StopAfter:
    """Asks to stop when it has been asked this often."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


def images(count: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 1, 4, 5, generator=torch.Generator().manual_seed(seed))


def same_filters(model: DeconvNet, other: DeconvNet) -> bool:
    return all(torch.equal(f, g) for f, g in zip(model.filters, other.filters, strict=True))


def train_or_resume(folder: Path, epochs: int, store: str) -> None:
    """What a process that is killed at any moment does when it is started again."""
    torch.set_num_threads(1)
    resume = has_checkpoint(folder / "checkpoint")
    train(recipe(epochs), images(), folder, resume=resume, store=store, checkpoint_every=1)


class Calls:
    """Counts the functions that a process calls, and kills the process at one of them.

    The count does not depend on how busy the machine is; a time would.
    """

    def __init__(self, last: float = math.inf) -> None:
        self.count = 0
        self.last = last

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1
            if self.count >= self.last:
                os.kill(os.getpid(), signal.SIGKILL)

    def __enter__(self) -> "Calls":
        sys.setprofile(self)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(None)


def count_calls(file: Path, folder: Path, epochs: int, store: str) -> None:
    """How many functions a training calls, written to a file."""
    with Calls() as calls:
        train_or_resume(folder, epochs, store)
    file.write_text(str(calls.count))


def train_until_killed(last: int, folder: Path, epochs: int, store: str) -> None:
    """Train, or resume, until so many functions have been called."""
    with Calls(last):
        train_or_resume(folder, epochs, store)


def process(target: Any, *arguments: Any) -> Any:
    """A real process of its own, forked from one that has imported torch already."""
    started = FORKS.Process(target=target, args=arguments, daemon=True)
    started.start()
    return started
