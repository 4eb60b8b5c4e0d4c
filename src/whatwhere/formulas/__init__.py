"""The formulas of the model on single numbers, each written once.

torch runs them on tensors as they are. Numba and Triton compile the same source over functions of
their own in place of torch's (`compile_formulas`), and use it on vectors and tiles. What every
backend adds is layout: where the numbers are, and the order of sums over them.

A backend imports them from `penalty`, `pooling` and `step`, or compiles all of them. `fits` is for
torch alone: how the kinds of pooling choose the variables of whole regions.
"""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType

from whatwhere.formulas import penalty, pooling, step

__all__ = ["FORMULAS", "SOURCES", "compile_formulas"]

FORMULAS = [
    value
    for module in (pooling, penalty, step)
    for value in vars(module).values()
    if isinstance(value, FunctionType) and value.__module__ == module.__name__
]
SOURCES = [Path(module.__file__ or "") for module in (pooling, penalty, step)]
"""The files of all formulas: machine code that was compiled from others is out of date."""


def compile_formulas(decorate: Callable[..., object], **names: object) -> ModuleType:
    """Compile the formulas for another backend: `decorate` compiles them over its functions `names`
    in place of torch's."""
    compiled = ModuleType("formulas")
    scope = vars(compiled)
    scope.update(names)
    for formula in FORMULAS:
        copy = FunctionType(formula.__code__, scope, formula.__name__)
        copy.__module__ = formula.__module__
        copy.__qualname__ = formula.__qualname__
        scope[formula.__name__] = decorate(copy)
    return compiled
