"""The reference engine: Algorithm 1 in plain PyTorch. It runs on every device, in every dtype, and
defines what the other engines must compute."""

from whatwhere.engines.reference import ista
from whatwhere.engines.reference.filter_map import FilterMap
from whatwhere.engines.threads import flushed_denormals
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
