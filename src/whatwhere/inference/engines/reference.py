"""The reference engine: Algorithm 1 in plain PyTorch. It runs on every device, in every dtype, and is the truth."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from whatwhere.inference import ista
from whatwhere.inference.filter_map import FilterMap
from whatwhere.model import Problem
from whatwhere.model.solution import Solution


class ReferenceEngine:
    """`ista.solve` and `FilterMap` as they are."""

    name = "reference"
    converges = False

    def solve(self, problem: Problem) -> Solution:
        with flushed_denormals():
            return ista.solve(problem)

    def filter_map(self, problem: Problem, k: int) -> FilterMap:
        problem.require_latents(k)
        return FilterMap(problem, k)

    def unsupported_reason(self, problem: Problem) -> str | None:
        """None: it supports every problem."""
        return None


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Numbers too small to be normal count as 0, since some processors take a hundred times as long for them.

    The setting belongs to the calling thread, and is afterwards as it was.
    """
    already = float(torch.tensor([1e-40]) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)
