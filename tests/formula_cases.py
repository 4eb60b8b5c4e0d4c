"""Arguments for every formula of `formulas`, and what torch computes from them in float64.

A case is a formula and its arguments: names of random numbers, constants, and tuples of these.
`render` writes the call in the language of a backend, so that Numba, Triton and the page's
JavaScript evaluate the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whatwhere.formulas import FORMULAS

BY_NAME = {formula.__name__: formula for formula in FORMULAS}

# constants that float32 holds exactly: Triton takes them as such
THETA, BOUNDS, GAMMA_BOUNDS = ("mu", "gamma"), (0.5, 0.015625, 100.0), (0.015625, 100.0)
CASES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "exponent": ("exponent", ("x", *THETA)),
    "pair_weights": ("pair_weights", THETA),
    "pair_difference": ("pair_difference", THETA),
    "weights_from_difference": ("weights_from_difference", ("share",)),
    "pair_moment": ("pair_moment", ("share", "share2", "x", "y")),
    "theta_gradient": ("theta_gradient", (*THETA, "x", "y")),
    "bound": ("bound", (*THETA, BOUNDS)),
    "step_theta": ("step_theta", (THETA, ("x", "y"), 0.3, BOUNDS)),
    "or_one": ("or_one", ("maybe",)),
    "strength, power 1": ("strength", ("x", 1)),
    "strength, power 2": ("strength", ("x", 2)),
    "strength_slope, power 1": ("strength_slope", ("x", 1)),
    "strength_slope, power 2": ("strength_slope", ("x", 2)),
    "precision": ("precision", ("share", "maybe", *GAMMA_BOUNDS)),
    "precision, γ below 1": ("precision", ("share", "maybe", 0.125, 0.5)),
    "fit_slope": ("fit_slope", (("mu", "inverse"), "share", ("x", "y"), 0.7)),
    "cost": ("cost", ("x", (0, 0.5))),
    "shrink": ("shrink", ("x", "share", (0, 0.5))),
    "powered, α 1": ("powered", ("x", 1.0)),
    "powered, α ½": ("powered", ("x", 0.5)),
    "powered, α 0.7": ("powered", ("y", 0.7)),
    "shrink_powered, α 1": ("shrink_powered", ("x", "share", 1.0)),
    "shrink_powered, α ½": ("shrink_powered", ("x", "share", 0.5)),
    "shrink_powered, α 0.7": ("shrink_powered", ("x", "share", 0.7)),
    "shrink_slopes, α 1": ("shrink_slopes", ("x", "share", 1.0)),
    "shrink_slopes, α ½": ("shrink_slopes", ("x", "share", 0.5)),
    "shrink_slopes, α 0.7": ("shrink_slopes", ("y", "share", 0.7)),
    "line_search": ("line_search", ("share", "maybe")),
    "next_momentum": ("next_momentum", ("gamma", "x")),
    "ahead": ("ahead", ("x", "y", 0.4)),
}


def inputs(count: int = 64) -> dict[str, Tensor]:
    """Random numbers by name, in float64: all kinds that the formulas tell apart."""
    generator = torch.Generator().manual_seed(0)
    rand, randn = (
        lambda: torch.rand(count, generator=generator, dtype=torch.float64),
        lambda: torch.randn(count, generator=generator, dtype=torch.float64),
    )
    values = {
        "x": randn(),
        "y": randn(),
        "mu": randn() / 2,
        "gamma": 8 * rand(),
        "share": 0.1 + 0.8 * rand(),
    }
    values |= {"share2": rand(), "maybe": rand() * (rand() > 0.3)}
    values["x"][:4] = 0.0  # nothing to shrink, no sign
    values["mu"][4:8] = 0.0  # centred: both weights are equal
    values["gamma"][8:12] = 1e4  # a switch
    # γ free, or at a bound
    values["inverse"] = torch.where(rand() > 0.5, 1 / values["share"], values["gamma"])
    return values


def evaluate(argument: Any, values: dict[str, Tensor]) -> Any:
    if isinstance(argument, tuple):
        return tuple(evaluate(part, values) for part in argument)
    return values[argument] if isinstance(argument, str) else argument


def expected(case: str, values: dict[str, Tensor]) -> Tensor:
    """What torch computes, one row for each number that the formula returns."""
    name, arguments = CASES[case]
    result = BY_NAME[name](*evaluate(arguments, values))
    return torch.stack(result if isinstance(result, tuple) else [result])


def render(arguments: Any, number: Callable[[str], str], brackets: str = "()") -> str:
    """The arguments of a case as source; `number` writes an input of this name."""
    if isinstance(arguments, tuple):
        parts = [render(part, number, brackets) for part in arguments]
        return (
            brackets[0]
            + ", ".join(parts)
            + ("," if len(parts) == 1 and brackets == "()" else "")
            + brackets[1]
        )
    return number(arguments) if isinstance(arguments, str) else repr(arguments)
