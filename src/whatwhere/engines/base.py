"""What an engine is: the same inference as Algorithm 1, slower and simpler or faster."""

from typing import Protocol

from torch import Tensor

from whatwhere.errors import EngineError
from whatwhere.model import Problem
from whatwhere.model.solution import Solution


class LinearMap:
    """What learning asks of A; every engine has its own."""

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
    """The same inference as `engines.reference.ista.solve`, slower and simpler or faster.

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
        """The linear map from the filters of layer k to the reconstruction, which learning
        inverts."""
        ...

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Why this engine does not support the problem; None if it does."""
        ...


def require_supported(engine: str, reason: str | None) -> None:
    """Raise an EngineError with the reason why an engine does not support a problem, where there
    is one."""
    if reason is not None:
        raise EngineError(
            f"Engine {engine!r} does not support this: {reason}. Set engine='auto' to use one that"
            " does."
        )
