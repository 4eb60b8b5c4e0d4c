"""What features cost: the penalties that inference can have. Import them from `whatwhere.spec`,
with all other settings.

A penalty is a value that owns what it means: its cost, and the shrinkage that lowers it. Its
formulas are in `formulas.penalty`, from which compiled engines take them by its `code`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from whatwhere.spec.checks import Checked, Within

if TYPE_CHECKING:
    from torch import Tensor


class _PenaltyFormulas:
    """The formulas of a penalty on tensors, by its `code`."""

    @property
    def code(self) -> tuple[int, float]:
        """The penalty as numbers, for compiled code: its kind and its parameter."""
        raise NotImplementedError

    def cost(self, p: "Tensor") -> "Tensor":
        """Return what every feature costs, shaped like p."""
        from whatwhere.formulas import penalty  # here, so that settings are read without torch

        result: Tensor = penalty.cost(p, self.code)
        return result

    def shrink(self, p: "Tensor", beta: "Tensor") -> "Tensor":
        """Return the features after a step of size β on their cost."""
        from whatwhere.formulas import penalty

        result: Tensor = penalty.shrink(p, beta, self.code)
        return result


@dataclass(frozen=True, kw_only=True)
class Power(_PenaltyFormulas, Checked):
    """The penalty Σ|p|^α.

    Parameters
    ----------
    alpha
        exponent α, from ½ (fewer features) to 1

    Examples
    --------
    >>> ww.InferenceSpec(penalty=ww.Power(alpha=0.5)).penalty
    Power(alpha=0.5)
    """

    kind: Literal["power"] = field(default="power", init=False, repr=False)
    alpha: Annotated[float, Within(0.5, 1)] = 1.0

    @property
    def code(self) -> tuple[int, float]:
        """The kind 0, and α."""
        return 0, self.alpha

    @property
    def degree(self) -> float:
        """Features that are s times as large cost s to this power as much."""
        return self.alpha

    @property
    def is_convex(self) -> bool:
        """Whether a feature leaves 0 exactly where its gradient is above the slope of the cost."""
        return self.alpha == 1

    def __str__(self) -> str:
        return f"α {self.alpha:g}"


Penalty = Power
"""Every penalty."""
