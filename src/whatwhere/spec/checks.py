"""Which values a setting may have: they are checked against its annotation, and errors say what was
expected.

@dataclass(frozen=True, kw_only=True)
class Steps(Checked):
    count: Count = 50                                   # an integer of at least 1
    size: Annotated[float, Within(0, 1)] | None = None  # a number from 0 to 1, or none
"""

import functools
import inspect
import json
import math
import numbers
import operator
import re
import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Self,
    TypeAlias,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from whatwhere.errors import InvalidSetting, UnknownSetting, nearest_names, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SpecClass: TypeAlias = Any
"""A class of settings: a frozen dataclass, perhaps with a `kind`."""

LARGEST = 2**63 - 1  # what a TOML file can hold
_PAIR = "a pair of numbers (height, width)"
_SCALARS = (bool, int, float, str)


def require(holds: bool, given: Mapping[str, object] | str, expected: str) -> None:
    """Raise an error that has what was given and what was expected as fields.

    Parameters
    ----------
    given
        values by name; or, where the names do not say it, a clause
    """
    if not holds:
        raise InvalidSetting(given, expected)


def require_count(name: str, value: object, least: int = 1) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(is_integer, {name: value}, f"an integer of at least {least}")


@dataclass(frozen=True)
class Within:
    """The range of a number, as a part of its annotation.

    Parameters
    ----------
    above, below
        the bounds themselves are not in the range
    """

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False

    def check(self, name: str, value: float) -> None:
        low = self.least < value if self.above else self.least <= value
        high = value < self.most if self.below else value <= self.most
        if low and high:  # the usual case: words for an error would take longer than the check
            return
        expected = "an integer" if isinstance(value, int) else "a number"
        expected += f" above {self.least:g}" if self.above else f" of at least {self.least:g}"
        if self.most < math.inf:
            expected += f" and below {self.most:g}" if self.below else f" and at most {self.most:g}"
        raise InvalidSetting({name: value}, expected)

    @property
    def words(self) -> str:
        """The range as a list of settings shows it: '≥ 1', '> 0 and ≤ 1'."""
        low = f"{'>' if self.above else '≥'} {self.least:g}"
        high = f" and {'<' if self.below else '≤'} {self.most:g}" if self.most < math.inf else ""
        return low + high


@dataclass(frozen=True)
class NotEmpty:
    """Several values, at least one, as a part of their annotation."""

    def check(self, name: str, value: tuple[object, ...]) -> None:
        require(len(value) > 0, {name: value}, "at least one value")


Count = Annotated[int, Within(1)]
CountOrZero = Annotated[int, Within(0)]
Positive = Annotated[float, Within(0, above=True)]
NonNegative = Annotated[float, Within(0)]
Size = Count | tuple[Count, Count]  # the same along both axes, or (height, width)


def pair(size: Size) -> tuple[int, int]:
    """Return a size along rows and columns."""
    return (size, size) if isinstance(size, int) else size


class _ShownType(str):
    """A type as it is written in source, which `help` shows as it is."""

    __repr__ = str.__str__


def _shown(hint: object) -> _ShownType:
    """Return a type without its range, and without the modules that its names come from."""
    text = inspect.formatannotation(without_ranges(hint))
    return _ShownType(re.sub(r"(?:\w+\.)+(?=\w)", "", text))


class _ShownSignature:
    """The signature of a dataclass for help and editors: its types are shown without their
    ranges."""

    def __get__(self, spec: object, kind: type) -> inspect.Signature:
        own = inspect.signature(vars(kind)["__init__"])
        parameters = [
            p.replace(annotation=_shown(p.annotation)) for p in list(own.parameters.values())[1:]
        ]
        return own.replace(parameters=parameters)


class Checked:
    """A frozen dataclass whose fields are checked against their annotations, so that it can be
    written to a file.

    Lists become tuples and numbers of NumPy become Python's. A choice may also be given as in a
    recipe file, by its name.
    """

    __signature__ = _ShownSignature()

    def __new__(cls, *values: object, **settings: object) -> Self:
        """Make a spec, unless a setting of another name is given."""
        known = [f.name for f in fields(cast(type["DataclassInstance"], cls)) if f.init]
        for name in settings:
            if name not in known:
                raise UnknownSetting(name, cls.__name__, nearest_names(name, known), known)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, hint in _cached_hints(cast(Hashable, type(self)), include_extras=True).items():
            object.__setattr__(self, name, convert(getattr(self, name), hint, name))


def without_ranges(hint: Any) -> Any:
    """Return a type without its range: int for `Count`."""
    if get_origin(hint) is Annotated:
        return without_ranges(get_args(hint)[0])
    if get_origin(hint) is Literal or not get_args(hint):
        return hint
    members = tuple(without_ranges(member) for member in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(operator.or_, members)
    return get_origin(hint)[members]


_TYPE_WORDS: dict[object, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
}
EXPECTED: dict[object, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
}


def values_in_words(hint: object) -> str:
    """Return the values that a type takes, as a list of settings shows them: 'integer ≥ 1',
    'image|batch'."""
    if get_origin(hint) is Annotated:
        plain_hint, bounds = get_args(hint)
        words = values_in_words(plain_hint)
        return f"{words} {bounds.words}" if isinstance(bounds, Within) else words
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    members = [member for member in union_members(hint) if member is not type(None)]
    if len(members) > 1:
        names = [member.kind for member in members if is_choice(member)]
        others = [values_in_words(member) for member in members if not is_choice(member)]
        return " or ".join([*others, *(["|".join(names)] if names else [])])
    if members != [hint]:
        return values_in_words(members[0])
    if get_origin(hint) is tuple:
        items = get_args(hint)
        return f"list of {values_in_words(items[0])}" if ... in items else "pair (height, width)"
    if is_choice(hint):
        return str(hint.kind)
    return _TYPE_WORDS.get(hint, "")


def value_in_words(value: object) -> str:
    """Return a value as `--set` takes it."""
    if is_choice(value):
        return str(value.kind)
    return value if isinstance(value, str) else json.dumps(value)


def type_hints(kind: type, *, ranges: bool = False) -> dict[str, object]:
    """Return the name and the type of every setting of a spec.

    Parameters
    ----------
    ranges
        with their ranges, where they have any
    """
    return _cached_hints(cast(Hashable, kind), include_extras=ranges)


@functools.cache
def _cached_hints(kind: SpecClass, include_extras: bool = False) -> dict[str, object]:
    hints = get_type_hints(kind, include_extras=include_extras)
    return {f.name: hints[f.name] for f in fields(kind)}


def convert(value: object, hint: object, name: str) -> object:
    """Return the value as the type of its setting; only numbers, sequences and the names of choices
    are converted, nothing is guessed."""
    if hint in _SCALARS:
        return _convert_scalar(value, hint, name)
    if get_origin(hint) is Annotated:
        plain_hint, bounds = get_args(hint)
        value = convert(value, plain_hint, name)
        bounds.check(name, value)
        return value
    if len(union_members(hint)) > 1:
        return _convert_union(value, hint, name)
    if is_choice(hint):
        return _convert_choice(value, [hint], name)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        expected = "one of " + ", ".join(map(repr, choices))
        require(value in choices, {name: value}, expected)
        return value
    if get_origin(hint) is tuple:
        return _convert_tuple(value, hint, name)
    return _convert_scalar(value, hint, name)


def _convert_union(value: object, hint: object, name: str) -> object:
    """Return a value that may be None, a choice of specs, a number, or several numbers."""
    members = [member for member in union_members(hint) if member is not type(None)]
    optional = len(members) < len(union_members(hint))
    if value is None and optional:
        return None
    if len(members) == 1:
        return convert(value, members[0], name)
    if type(value) in members:
        return value
    specs = [member for member in members if is_choice(member)]
    if specs and isinstance(value, str | dict):
        return _convert_choice(value, specs, name)
    return _convert_plain(value, members, name)


def _convert_plain(value: object, members: Sequence[object], name: str) -> object:
    """Return a number, or several, by the first of the types that takes such a value."""
    forms = {member: _plain_form(member) for member in members}
    fitting = [member for member, (_, types) in forms.items() if isinstance(value, types)]
    if not fitting:
        expected = " or ".join(words for words, _ in forms.values())
        raise InvalidSetting({name: value}, expected)
    return convert(value, fitting[0], name)


def is_choice(hint: object) -> TypeGuard[SpecClass]:
    """Tell whether a type is a spec of a choice: it has a name, its `kind`, which cannot be set."""
    return is_dataclass(hint) and _has_kind(hint if isinstance(hint, type) else type(hint))


@functools.cache
def _has_kind(spec: SpecClass) -> bool:
    return any(f.name == "kind" and not f.init for f in fields(spec))


def _convert_choice(value: object, specs: Sequence[SpecClass], name: str) -> object:
    """Return one of some specs: itself, its name, or a table with its name and its settings."""
    if type(value) in specs:
        return value
    if not isinstance(value, str | dict):
        expected = " or ".join(spec.__name__ for spec in specs)
        raise InvalidSetting({name: value}, expected)
    chosen, settings = choose_kind(value, specs, name)
    return chosen(**settings)


def choose_kind(
    value: str | dict[str, object],
    specs: Sequence[SpecClass],
    name: str,
    old: SpecClass | None = None,
) -> tuple[SpecClass, dict[str, object]]:
    """Return the spec that a table of a choice stands for, and its settings; a name alone stands
    for a table with nothing else.

    Parameters
    ----------
    old
        the spec that a table without a name keeps
    """
    kinds = {spec.kind: spec for spec in specs}
    table: dict[str, object] = {"kind": value} if isinstance(value, str) else dict(value)
    kind = table.pop("kind", None)
    if kind is None and old in specs:
        return old, table
    if kind is None and len(specs) == 1:
        return specs[0], table
    if not isinstance(kind, str) or kind not in kinds:
        given = name if isinstance(value, str) else f"{name}.kind"
        expected = " or ".join(map(repr, kinds))
        if len(specs) == 1:
            settings = ", ".join(f.name for f in fields(specs[0]) if f.init)
            expected += f", whose settings are: {settings}"
        raise InvalidSetting({given: kind}, expected)
    return kinds[kind], table


def _convert_tuple(value: object, hint: object, name: str) -> tuple[object, ...]:
    """Return several values of one type, or a pair."""
    items = get_args(hint)
    is_pair = ... not in items
    if not isinstance(value, list | tuple) or (is_pair and len(value) != len(items)):
        expected = _PAIR if is_pair else "a list"
        if not is_pair and isinstance(value, _SCALARS):
            expected += f", such as [{shown(value)}]"
        raise InvalidSetting({name: value}, expected)
    return tuple(convert(item, items[0], name) for item in value)


def _convert_scalar(value: object, hint: Any, name: str) -> object:
    """Return a number, a text, a truth value, a table, which stays as it is, or a spec."""
    is_bool = isinstance(value, bool)
    if hint is float and isinstance(value, numbers.Real) and not is_bool:
        return finite(value, name)
    if hint is int and isinstance(value, numbers.Integral) and not is_bool:
        if abs(int(value)) > LARGEST:
            raise InvalidSetting({name: value}, f"an integer of at most {LARGEST:,}")
        return int(value)
    if not isinstance(value, get_origin(hint) or hint) or is_bool is not (hint is bool):
        expected = f"{EXPECTED.get(hint, hint.__name__)}, not {type(value).__name__}"
        remedy = "Leave it out to keep its value." if value is None else ""
        raise InvalidSetting({name: value}, expected, remedy)
    return value


def _plain_form(hint: object) -> tuple[str, tuple[type, ...]]:
    """Return a member of a choice in words, and the types that are converted to it: none if it is a
    spec."""
    if is_dataclass(hint):
        return cast(type, hint).__name__, ()
    if get_origin(hint) is tuple:
        return _PAIR, (list, tuple)
    return "a number", (numbers.Real,)


def union_members(hint: object) -> tuple[object, ...]:
    """Return the types that a value may have: the members of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def finite(value: numbers.Real, name: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidSetting({name: value}, "a finite number, below 1.8e308")
    return number
