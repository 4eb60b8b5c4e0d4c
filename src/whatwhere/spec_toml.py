"""Recipes as TOML files of differences from the paper's settings.

    seed = 1
    [model.layers.2]        # layers are named by their number, or `each` for all of them
    maps = 64
    [learning.each]
    epochs = 10
    [inference]
    lam = 20.0

A key that no setting has is refused by name, with the nearest one that exists.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
import types
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from whatwhere.errors import SpecError
from whatwhere.spec import Recipe

Spec = TypeVar("Spec")
_SETTINGS: dict[type, dict[str, Any]] = {}


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe: the paper's settings with the file's differences."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path} was given as a recipe; there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not valid TOML: {error}") from None
    return override(Recipe.paper(), content)


def write_recipe(recipe: Recipe, path: str | os.PathLike[str]) -> None:
    """Write every setting of a recipe, so that reading it gives the same recipe whatever the defaults become."""
    Path(path).write_text(to_toml(recipe), encoding="utf-8")


def override(spec: Spec, changes: dict[str, Any], where: str = "") -> Spec:
    """The same spec with the differences of a parsed TOML table."""
    hints = _settings(type(spec))
    new: dict[str, Any] = {}
    for key, value in changes.items():
        name = f"{where}{key}"
        if key not in hints:
            raise SpecError(f"{name} is not a setting{_nearest(key, hints)}")
        old = getattr(spec, key)
        if is_dataclass(old):
            new[key] = override(old, _table(name, value), f"{name}.")
        elif _item_spec(hints[key]) is not None:
            new[key] = _override_items(_item_spec(hints[key]), old, value, name)
        else:
            new[key] = _convert(value, hints[key], name)
    return _named(where, lambda: replace(spec, **new))  # type: ignore[type-var]


def build(kind: type[Spec], content: dict[str, Any], where: str = "") -> Spec:
    """Make a spec from plain values (a parsed table, or JSON of `asdict`); what is missing has its default."""
    hints = _settings(kind)
    new: dict[str, Any] = {}
    for key, value in _table(where or kind.__name__, content).items():
        name = f"{where}{key}"
        if key not in hints:
            raise SpecError(f"{name} is not a setting{_nearest(key, hints)}")
        item = _item_spec(hints[key])
        if item is not None:
            new[key] = _override_items(item, (), value, name)
        elif is_dataclass(hints[key]):
            new[key] = build(hints[key], value, f"{name}.")
        else:
            new[key] = _convert(value, hints[key], name)
    missing = [f.name for f in fields(kind) if f.name not in new and not _has_default(f)]  # type: ignore[arg-type]
    if missing:
        raise SpecError(f"{where}{missing[0]} is missing; it has no default")
    return _named(where, lambda: kind(**new))


def to_toml(recipe: Recipe) -> str:
    """A recipe as TOML text, every setting written out."""
    return "\n".join(_lines(recipe, "")) + "\n"


def _lines(spec: Any, path: str, header: str = "[{}]") -> list[str]:
    plain, tables = [], []
    for f in fields(spec):
        value = getattr(spec, f.name)
        if is_dataclass(value):
            tables += _lines(value, f"{path}{f.name}.")
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            for item in value:  # as a list, which is read as it stands; tables by number would be differences
                tables += _lines(item, f"{path}{f.name}.", "[[{}]]")
        elif value is not None:
            plain.append(f"{f.name} = {json.dumps(value)}")  # JSON's scalars and lists are TOML's
    head = ["\n" + header.format(path[:-1])] if path and plain else []
    return head + plain + tables


def _override_items(kind: type, old: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    """A tuple of specs from a list of tables, or from tables named by their number or `each`."""
    if isinstance(value, list | tuple):
        return tuple(build(kind, item, f"{name}.{i}.") for i, item in enumerate(value, start=1))
    items: dict[int, Any] = dict(enumerate(old, start=1))
    table = _table(name, value)
    for i in items if "each" in table else ():
        items[i] = override(items[i], _table(f"{name}.each", table["each"]), f"{name}.each.")
    for key, item in table.items():
        if key == "each":
            continue
        if not key.isdecimal() or not 1 <= int(key) <= len(items) + 1:
            raise SpecError(f"{name}.{key} was given; expected a number from 1 to {len(items) + 1}, or 'each'")
        number, path = int(key), f"{name}.{key}."
        items[number] = (
            override(items[number], _table(path[:-1], item), path) if number in items else build(kind, item, path)
        )
    return tuple(items[i] for i in sorted(items))


def _convert(value: Any, hint: Any, name: str) -> Any:
    """A plain value as the type that a setting has; nothing is guessed but int → float and list → tuple."""
    if get_origin(hint) in (Union, types.UnionType):
        if value is None:
            return None
        hint = next(h for h in get_args(hint) if h is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            expected = ", ".join(map(repr, get_args(hint)))
            raise SpecError(f"{name} = {value!r} was given; expected one of {expected}")
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise SpecError(f"{name} = {value!r} was given; expected a list")
        return tuple(_convert(v, get_args(hint)[0], name) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not (get_origin(hint) or hint):  # dict[str, Any] is taken as it stands
        raise SpecError(f"{name} = {value!r} was given; expected {hint.__name__}, not {type(value).__name__}")
    return value


def _settings(kind: type) -> dict[str, Any]:
    """The settings of a spec and their types; evaluating the annotations takes most of the time of reading a file."""
    if kind not in _SETTINGS:
        _SETTINGS[kind] = get_type_hints(kind)
    return _SETTINGS[kind]


def _item_spec(hint: Any) -> Any:
    """The spec that a tuple holds, or None."""
    item = get_args(hint)[0] if get_origin(hint) is tuple else None
    return item if is_dataclass(item) else None


def _has_default(f: Any) -> bool:
    return f.default is not MISSING or f.default_factory is not MISSING


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(f"{name} = {value!r} was given; expected a table of settings")
    return value


def _nearest(key: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; the settings here are {', '.join(known)}"


def _named(where: str, make: Any) -> Any:
    """Run a constructor; if it refuses its values, say where in the file they stand."""
    try:
        return make()
    except SpecError as error:
        if not where or str(error).startswith("in "):
            raise
        raise SpecError(f"in {where[:-1]}: {error}") from None
