"""What the value of a setting may be: its annotation, which is checked, and errors that say what
was expected.

@dataclass(frozen=True, kw_only=True)
class Steps(Checked):
    count: Count = 50                                   # an integer of at least 1
    size: Annotated[float, Within(0, 1)] | None = None  # a number from 0 to 1, or none
"""

import functools
import math
import numbers
import types
from collections.abc import Hashable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from whatwhere.errors import SpecError

LARGEST = 2**63 - 1  # what a TOML file can hold
PAIR = "a pair of numbers (height, width)"


def require(holds: bool, given: str, expected: str) -> None:
    """Raise an error that says what was given and what was expected."""
    if not holds:
        raise SpecError(f"{given} was given; expected {expected}")


def require_count(name: str, value: object, least: int = 1) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(is_integer, f"{name} = {shown(value)}", f"an integer of at least {least}")


@dataclass(frozen=True)
class Within:
    """The range of a number, as a part of its annotation.

    above, below   the bounds themselves are not in the range
    """

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False

    def check(self, name: str, value: float) -> None:
        low = self.least < value if self.above else self.least <= value
        high = value < self.most if self.below else value <= self.most
        expected = "an integer" if isinstance(value, int) else "a number"
        expected += f" above {self.least:g}" if self.above else f" of at least {self.least:g}"
        if self.most < math.inf:
            expected += f" and below {self.most:g}" if self.below else f" and at most {self.most:g}"
        require(low and high, f"{name} = {shown(value)}", expected)


class NotEmpty:
    """Several values, at least one, as a part of their annotation."""

    def check(self, name: str, value: tuple[object, ...]) -> None:
        require(len(value) > 0, f"{name} = ()", "at least one value")


Count = Annotated[int, Within(1)]
CountOrZero = Annotated[int, Within(0)]
Positive = Annotated[float, Within(0, above=True)]
NonNegative = Annotated[float, Within(0)]
Size = Count | tuple[Count, Count]  # the same along both axes, or (height, width)


def pair(size: Size) -> tuple[int, int]:
    """A size along rows and columns."""
    return (size, size) if isinstance(size, int) else size


class Checked:
    """A frozen dataclass whose fields are checked against their annotations, so that it can be
    written to a file.

    Lists become tuples and numbers of NumPy become Python's.
    """

    def __post_init__(self) -> None:
        for name, hint in _cached_hints(cast(Hashable, type(self)), include_extras=True).items():
            object.__setattr__(self, name, convert(getattr(self, name), hint, name))


def type_hints(kind: type) -> dict[str, Any]:
    """The name and the type of every setting of a spec; without their ranges."""
    return _cached_hints(cast(Hashable, kind))


@functools.cache
def _cached_hints(kind: Any, include_extras: bool = False) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=include_extras)
    return {f.name: hints[f.name] for f in fields(kind)}


def convert(value: Any, hint: Any, name: str) -> Any:
    """The value as the type of its setting; only numbers and sequences are converted, nothing is
    guessed."""
    if get_origin(hint) is Annotated:
        plain_hint, bounds = get_args(hint)
        value = convert(value, plain_hint, name)
        bounds.check(name, value)
        return value
    members = [h for h in union_members(hint) if h is not type(None)]
    if value is None and len(members) < len(union_members(hint)):
        return None
    if len(members) > 1:  # a choice of specs, a number, or several numbers
        if type(value) in members:
            return value
        forms = {h: _plain_form(h) for h in members}
        if not (members := [h for h, (_, types) in forms.items() if isinstance(value, types)]):
            expected = " or ".join(words for words, _ in forms.values())
            raise SpecError(f"{name} = {shown(value)} was given; expected {expected}")
    (member,) = members
    if member is not hint:
        return convert(value, member, name)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        require(
            value in choices, f"{name} = {shown(value)}", "one of " + ", ".join(map(repr, choices))
        )
        return value
    if get_origin(hint) is tuple:
        pair = ... not in get_args(hint)
        fits = isinstance(value, list | tuple) and (not pair or len(value) == len(get_args(hint)))
        require(fits, f"{name} = {shown(value)}", PAIR if pair else "a list")
        return tuple(convert(item, get_args(hint)[0], name) for item in value)
    is_bool = isinstance(value, bool)
    if hint is float and isinstance(value, numbers.Real) and not is_bool:
        return finite(value, name)
    if hint is int and isinstance(value, numbers.Integral) and not is_bool:
        require(
            abs(int(value)) <= LARGEST,
            f"{name} = {shown(value)}",
            f"an integer of at most {LARGEST:,}",
        )
        return int(value)
    # dict[str, Any] stays as it is
    if not isinstance(value, get_origin(hint) or hint) or is_bool is not (hint is bool):
        raise SpecError(
            f"{name} = {shown(value)} was given; expected {hint.__name__}, not"
            f" {type(value).__name__}"
        )
    return value


def _plain_form(hint: Any) -> tuple[str, tuple[type, ...]]:
    """A member of a choice in words, and the types that are converted to it: none if it is
    a spec."""
    if is_dataclass(hint):
        return cast(type, hint).__name__, ()
    return (PAIR, (list, tuple)) if get_origin(hint) is tuple else ("a number", (numbers.Real,))


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
