"""The speed of inference: every engine on the same digits, side by side in one process.

The unit is the image-iteration: one step of inference for one image. Sparse engines are faster on sparse features, so
the model is a trained one, and latents are warmed up by one solve.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from whatwhere.data import load
from whatwhere.inference.engines import ENGINES
from whatwhere.learning import read_run
from whatwhere.model import Problem
from whatwhere.spec import InferenceSpec, LineSearch, Phase


def cases(steps: int) -> dict[str, tuple[Phase, InferenceSpec]]:
    """The paper's settings in training and at test, for the top layer and for layer 1."""
    training = InferenceSpec(lam=0.5, alpha=0.5, step=LineSearch(per="batch"), steps=steps)
    test = InferenceSpec(lam=5.0, alpha=1.0, steps=steps)
    joint, layer_1 = Phase(layer=2, update_pooling=(1, 2)), Phase(layer=1, update_pooling=(1,))
    return {
        "joint, batch step, α ½": (joint, training),
        "joint, image step, α 1": (joint, test),
        "layer 1, batch step, α ½": (layer_1, replace(training, lam=2.0)),
        "layer 1, image step, α 1": (layer_1, test),
    }


def bench_inference(device: torch.device, *, images: int, steps: int, repeats: int) -> Iterator[dict[str, Any]]:
    """The image-iterations a second of every engine that supports a case, on a CPU with one thread and with two.

    `speedup` is over the reference engine with as many threads; best against best.
    """
    model, digits = read_run("mnist").model.to(device), load("digits")
    v = digits[[row % len(digits) for row in range(images)]].to(device)
    for case, (phase, spec) in cases(steps).items():
        problem = Problem(model, v, phase, spec)
        for threads in (1, 2) if device.type == "cpu" else (1,):
            reference = 0.0
            for name, engine in reversed(ENGINES.items()):  # the reference first
                if engine.unsupported_reason(problem) is not None:
                    continue
                with torch_threads(threads), torch.no_grad():
                    seconds = list(time_solves(engine.solve, problem, repeats))
                best = images * steps / min(seconds)
                reference = reference or best
                yield {
                    "case": case,
                    "engine": name,
                    "threads": threads,
                    "images": images,
                    "steps": steps,
                    "median": images * steps / statistics.median(seconds),
                    "best": best,
                    "seconds": seconds,
                    "speedup": best / reference,
                }


def time_solves(solve: Callable[[Problem], Any], problem: Problem, repeats: int) -> Iterator[float]:
    """Warm up, then the seconds of whole solves that start from the warm latents."""
    problem = replace(problem, latents=solve(problem).latents)
    for _ in range(repeats):
        synchronise(problem.images.device)
        start = time.perf_counter()
        solve(problem)
        synchronise(problem.images.device)
        yield time.perf_counter() - start


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run with this many threads, then as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
