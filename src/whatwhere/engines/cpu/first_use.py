"""Small problems while machine code compiles, which takes about 20 s: the reference solves
them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch

from whatwhere.engines.base import Engine
from whatwhere.engines.reference import ReferenceEngine
from whatwhere.errors import RunError, SlowEngineWarning, warn
from whatwhere.files import locked
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution

COMPILE = """
import torch, whatwhere as ww
from whatwhere.engines.cpu.first_use import only_compiler
with only_compiler():
    model = ww.DeconvNet(ww.ModelSpec.paper())
    ww.infer(model, torch.ones(1, 1, 12, 12), ww.InferenceSpec(steps=1), engine="cpu")
"""


class WhileCompiling(ReferenceEngine):
    """The reference, which leaves one core to the process that compiles: threads that wait for one
    another take three times as long if another program occupies a core."""

    def solve(self, problem: Problem) -> Solution:
        threads = torch.get_num_threads()
        torch.set_num_threads(max(1, threads - 1))
        try:
            return super().solve(problem)
        finally:
            torch.set_num_threads(threads)


def has_machine_code() -> bool:
    from whatwhere.engines.cpu.loop import advance
    from whatwhere.engines.jit import is_compiled

    return is_compiled(advance)


@contextmanager
def only_compiler() -> Iterator[None]:
    """Hold the lock for filling the folder of machine code; raises a RunError if another process
    holds it."""
    from whatwhere.engines.cpu.loop import advance
    from whatwhere.engines.jit import cache_folder

    folder = cache_folder(advance)
    if folder is None:
        raise RunError("Cannot write to any folder for machine code.")
    with locked(folder, f"Another process is compiling the machine code in {folder}."):
        yield


@cache
def compile_apart(start: Callable[..., object] = subprocess.Popen) -> None:
    """Start to make the machine code in another process, once. Many commands that start together,
    such as shards, leave it to the first one."""
    try:
        with only_compiler():
            pass
    except RunError:
        return
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    nowhere = subprocess.DEVNULL
    start(
        [sys.executable, "-c", COMPILE],
        env=environment,
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
    )


@dataclass
class FirstUse:
    """Counts the work that is done without machine code: all of it together takes less time than
    compiling.

    Parameters
    ----------
    is_compiled
        tells whether there is machine code
    start_compiling
        starts to make it in another process
    """

    is_compiled: Callable[[], bool] = has_machine_code
    start_compiling: Callable[[], None] = compile_apart
    work: float = 0.0
    engine: ClassVar[Engine] = WhileCompiling()

    def is_small(self, problem: Problem, images: int) -> bool:
        """Tell whether the reference solves this for this many images; if so, another process makes
        the machine code."""
        # connected weights × pixels × steps: 1.5 s of the reference, five digits in 50 steps
        most = 2e9
        work = self.work + images * _work_of(problem)
        if work > most or self.is_compiled():
            return False
        self.work = work
        self.start_compiling()
        warn(
            "The reference engine solves this small problem while engine 'cpu' compiles its"
            " machine code, which takes about 20 s, once per installation. Set engine='cpu' to"
            " wait for it.",
            SlowEngineWarning,
        )
        return True


def _work_of(problem: Problem) -> float:
    """Connected weights × pixels × steps for an image."""
    weights = connected_weights(problem.model, problem.phase.layer)
    return weights * problem.images[0, 0].numel() * problem.spec.steps


def connected_weights(model: DeconvNet, depth: int) -> float:
    """Return the number of weights of connected maps in the first layers of a model."""
    layers = list(zip(model.filters, model.connectivity, strict=True))[:depth]
    return sum(float(connected.sum()) * filters[0, 0].numel() for filters, connected in layers)
