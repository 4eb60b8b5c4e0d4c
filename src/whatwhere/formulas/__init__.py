"""The formulas of the model on single numbers, each written once.

torch runs them on tensors as they are. Numba and Triton compile the same source over functions of
their own in place of torch's (`compile_formulas`), and use it on vectors and tiles. What every
backend adds is layout: where the numbers are, and the order of sums over them.

`fits` is for torch alone: how the kinds of pooling choose the variables of whole regions.
"""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from whatwhere.formulas import penalty, pooling, step
from whatwhere.formulas.penalty import cost, powered, shrink, shrink_powered
from whatwhere.formulas.pooling import (
    bound,
    exponent,
    fit_slope,
    or_one,
    pair_difference,
    pair_moment,
    pair_weights,
    precision,
    step_theta,
    strength,
    strength_slope,
    theta_gradient,
    weights_from_difference,
)
from whatwhere.formulas.step import ahead, line_search, next_momentum

__all__ = [
    "FORMULAS",
    "SOURCES",
    "ahead",
    "bound",
    "compile_formulas",
    "cost",
    "exponent",
    "fit_slope",
    "line_search",
    "next_momentum",
    "or_one",
    "pair_difference",
    "pair_moment",
    "pair_weights",
    "powered",
    "precision",
    "shrink",
    "shrink_powered",
    "step_theta",
    "strength",
    "strength_slope",
    "theta_gradient",
    "weights_from_difference",
]

FORMULAS = [
    value
    for module in (pooling, penalty, step)
    for value in vars(module).values()
    if isinstance(value, FunctionType) and value.__module__ == module.__name__
]
SOURCES = [Path(module.__file__ or "") for module in (pooling, penalty, step)]
"""The files of all formulas: machine code that was compiled from others is out of date."""


def compile_formulas(decorate: Callable[..., Any], **names: Any) -> ModuleType:
    """The formulas for another backend: `decorate` compiles them over its functions `names` in
    place of torch's."""
    compiled = ModuleType("formulas")
    scope = vars(compiled)
    scope.update(names)
    for formula in FORMULAS:
        copy = FunctionType(formula.__code__, scope, formula.__name__)
        copy.__module__ = formula.__module__
        copy.__qualname__ = formula.__qualname__
        scope[formula.__name__] = decorate(copy)
    return compiled
