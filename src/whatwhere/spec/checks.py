"""What the value of a setting may be: checks that say what was given and what was expected."""

from __future__ import annotations

import functools
import math
import numbers
import types
from collections.abc import Hashable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from whatwhere.errors import SpecError

LARGEST = 2**63 - 1  # what a TOML file can hold


def require(holds: bool, given: str, expected: str) -> None:
    """Raise an error that says what was given and what was expected."""
    if not holds:
        raise SpecError(f"{given} was given; expected {expected}")


def require_choice(name: str, value: object, choices: Iterable[str]) -> None:
    require(value in tuple(choices), f"{name} = {shown(value)}", "one of " + ", ".join(map(repr, choices)))


def require_count(name: str, value: object, least: int = 1) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(is_integer, f"{name} = {shown(value)}", f"an integer of at least {least}")


def check_fields(spec: Any) -> None:
    """Check every field of a frozen spec against its annotation, so that whatever is made can be written to a file.

    Lists become tuples and numbers of NumPy become Python's.
    """
    hints = type_hints(type(spec))
    for f in fields(spec):
        object.__setattr__(spec, f.name, convert(getattr(spec, f.name), hints[f.name], f.name))


def type_hints(kind: type) -> dict[str, Any]:
    """The name and the type of every setting of a spec."""
    return _cached_hints(cast(Hashable, kind))


@functools.cache
def _cached_hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def convert(value: Any, hint: Any, name: str) -> Any:
    """The value as the type of its setting; only numbers and sequences are converted, nothing is guessed."""
    members = [h for h in union_members(hint) if h is not type(None)]
    if value is None and len(members) < len(union_members(hint)):
        return None
    if len(members) > 1:  # a choice of specs, or a number
        if type(value) in members:
            return value
        plain = [h for h in members if not is_dataclass(h)]
        if not plain or not isinstance(value, numbers.Real):
            expected = " or ".join("a number" if h is float else h.__name__ for h in members)
            raise SpecError(f"{name} = {shown(value)} was given; expected {expected}")
        members = plain
    (hint,) = members
    if get_origin(hint) is Literal:
        require_choice(name, value, get_args(hint))
        return value
    if get_origin(hint) is tuple:
        require(isinstance(value, list | tuple), f"{name} = {shown(value)}", "a list")
        return tuple(convert(item, get_args(hint)[0], name) for item in value)
    is_bool = isinstance(value, bool)
    if hint is float and isinstance(value, numbers.Real) and not is_bool:
        return finite(value, name)
    if hint is int and isinstance(value, numbers.Integral) and not is_bool:
        require(abs(int(value)) <= LARGEST, f"{name} = {shown(value)}", f"an integer of at most {LARGEST:,}")
        return int(value)
    if not isinstance(value, get_origin(hint) or hint) or is_bool is not (
        hint is bool
    ):  # dict[str, Any] stays as it is
        raise SpecError(f"{name} = {shown(value)} was given; expected {hint.__name__}, not {type(value).__name__}")
    return value


def union_members(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have: those of a union, or the one."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def finite(value: numbers.Real, name: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    require(math.isfinite(number), f"{name} = {shown(value)}", "a finite number, below 1.8e308")
    return number


def shown(value: object) -> str:
    """A value as a message shows it: at most 60 characters, on one line."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of more than 4,300 digits
        return "a very large integer"
    return text if len(text) <= 60 else text[:57] + "…"
