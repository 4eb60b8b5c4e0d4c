"""The interface of an engine, which is an implementation of Algorithm 1."""

from typing import Protocol

from torch import Tensor

from whatwhere.errors import EngineError
from whatwhere.model import Problem
from whatwhere.model.solution import Solution


class UnsupportedProblem(EngineError):
    """A problem that an engine does not support.

    Attributes
    ----------
    engine
        its name
    reason
        why, as a clause
    """

    def __init__(self, engine: str, reason: str) -> None:
        self.engine = engine
        self.reason = reason
        super().__init__(
            f"Engine {engine!r} does not support this: {reason}. Set engine='auto' to use one that"
            " does."
        )


class LinearMap:
    """The products with A that learning needs; every engine has its own implementation."""

    def gradient(self, f: Tensor, *, subtract: bool) -> Tensor:
        """Aᵀ (A f), or Aᵀ (A f - M ⊙ v), [C, B, K, L]."""
        raise NotImplementedError

    def normal(self, f: Tensor) -> Tensor:
        """Aᵀ A f."""
        return self.gradient(f, subtract=False)

    def negative_gradient(self, f: Tensor) -> Tensor:
        """Aᵀ (M ⊙ v - A f), the negative gradient of ½ ‖A f - M ⊙ v‖²."""
        return -self.gradient(f, subtract=True)


class Engine(Protocol):
    """An implementation of the inference of `engines.reference.ista.solve`.

    An engine imports its compiler (Numba, Triton) when it is first used, so that naming an engine
    costs nothing.
    """

    @property
    def name(self) -> str: ...

    @property
    def converges(self) -> bool:
        """Does `solve` itself continue until `spec.tolerance` is reached?"""
        ...

    def solve(self, problem: Problem) -> Solution:
        """Run all steps of one phase for one batch of images."""
        ...

    def filter_map(self, problem: Problem, k: int) -> LinearMap:
        """Return the linear map from the filters of layer k to the reconstruction, which learning
        inverts."""
        ...

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return why this engine does not support the problem; None if it does."""
        ...


def require_supported(engine: str, reason: str | None) -> None:
    """Raise an EngineError if there is a reason why an engine does not support a problem."""
    if reason is not None:
        raise UnsupportedProblem(engine, reason)
