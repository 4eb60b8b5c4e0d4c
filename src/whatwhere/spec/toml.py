"""Recipes as TOML files of differences from the paper's settings.

    seed = 1
    [model.layers.2]        # layers are named by their number, or `each` for all of them
    maps = 64
    [learning.each]
    epochs = 10
    [inference]
    lam = 20.0
    step = { kind = "line_search", per = "image", momentum = true }
    penalty = { kind = "power", alpha = 0.5 }

A setting that is a choice has a table with its `kind`; a name alone, `step = "fixed"`, is short for
one with only that. Without `kind` the choice stays, and so do its settings that are not given. A
key that is not a setting raises an error that suggests the nearest one.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_args, get_origin

from whatwhere.errors import (
    InvalidSetting,
    NoSuchRecipe,
    SpecError,
    SpecErrorAt,
    UnknownSetting,
    did_you_mean,
)
from whatwhere.files import read_regular, readable, untrusted
from whatwhere.spec.checks import (
    SpecClass,
    choose_kind,
    convert,
    is_choice,
    type_hints,
    union_members,
    values_in_words,
)
from whatwhere.spec.docstrings import docstring
from whatwhere.spec.recipe import Recipe, follow_depth

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Spec = TypeVar("Spec")
INCLUDED = {file.stem: file for file in sorted((Path(__file__).parent / "recipes").glob("*.toml"))}


class GivenTwice(SpecError):
    """A setting that is given twice, as a table and by a dotted name.

    Attributes
    ----------
    name
        the setting
    other
        the longer name that gives it again; empty if it is the same one
    """

    def __init__(self, name: str, other: str = "") -> None:
        self.name = name
        self.other = other
        again = f", also by {other}. Give one of them." if other else ". Give it once."
        super().__init__(f"{name} is given twice{again}")


class MissingSetting(SpecError):
    """A setting without a value and without a default.

    Attributes
    ----------
    name
        the setting, with the tables that it is in
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} is missing and has no default. Give a value.")


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    r"""Read a recipe: the paper's settings with the file's differences.

    Parameters
    ----------
    path
        path of a TOML file, or the name of an included recipe: 'paper', 'demo', 'pictures',
        'photographs' or 'signals'

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("mine.toml").write_text("seed = 1\n[learning.each]\nepochs = 10\n")
    >>> ww.read_recipe("mine.toml")
    Recipe(layers of 16 and 48 maps, 10 and 10 epochs, batch_size=1000, seed=1)
    """
    file = Path(INCLUDED.get(os.fspath(path), path))
    included = f"the included recipes are {', '.join(INCLUDED)}"
    with readable(file, "recipe", included, SpecError):
        try:
            text = read_regular(file, 2**20).decode()  # bytes
        except FileNotFoundError:
            near = did_you_mean(file.name, INCLUDED)
            remedy = f"{included[0].upper()}{included[1:]}.{near}"
            raise NoSuchRecipe("the recipe", path, remedy=remedy) from None
        with untrusted():  # such as tables that are nested too deeply
            content = tomllib.loads(text)
    return override(Recipe.paper(), content)


def parse_toml(text: str, name: str) -> dict[str, object]:
    """Return TOML as plain values; `name` says in an error where the text came from."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError(f"{name} is not a recipe: its tables are nested too deeply.") from None
    except ValueError as error:  # also an integer of more than 4,300 digits
        raise SpecError(f"{name} is not valid TOML: {error}.") from None


def override(spec: Spec, changes: dict[str, object], where: str = "") -> Spec:
    """Return the same spec with the differences of a parsed TOML table.

    If the number of layers changes, the learning settings follow (see `follow_depth`).

    Parameters
    ----------
    spec
        a recipe, or a part of one
    changes
        the differences, by the names that a recipe file uses: tables in tables, or dotted names as
        on the command line
    where
        prefix of the names in an error

    Examples
    --------
    >>> ww.override(ww.InferenceSpec(), {"lam": 20, "steps": 10}).lam
    20.0
    >>> ww.override(ww.Recipe.paper(), {"model": {"layers": [{"maps": 8}]}})
    Recipe(layers of 8 maps, 50 epochs, batch_size=1000, seed=0)
    >>> ww.override(ww.Recipe.paper(), {"inference.steps": 20, "inference.lam": 3}).inference.steps
    20
    """
    changes = _undotted(changes)
    new = _parse_fields(type(spec), changes, where, spec)
    # a list of learning settings is complete as it stands
    if (
        isinstance(spec, Recipe)
        and "model" in new
        and not isinstance(changes.get("learning"), list)
    ):
        depth = new["model"].depth
        learning = new.get("learning", spec.learning)
        too_many = "learning" in new and len(learning) > depth  # which the recipe reports
        new["learning"] = learning if too_many else follow_depth(learning, depth)
    return _named(where, lambda: cast(Spec, replace(cast("DataclassInstance", spec), **new)))


def _undotted(changes: dict[str, object]) -> dict[str, object]:
    """Expand dotted names into tables: {"a.b": 1, "a.c": 2} is {"a": {"b": 1, "c": 2}}."""
    tables: dict[str, object] = {}
    for name, value in changes.items():
        *path, last = name.split(".")
        table = tables
        for step in path:
            inner = table.setdefault(step, {})
            if not isinstance(inner, dict):
                raise GivenTwice(step, name)
            table = inner
        if last in table:
            raise GivenTwice(name)
        table[last] = dict(value) if isinstance(value, dict) else value
    return tables


def build(kind: type[Spec], content: object, where: str = "") -> Spec:
    """Make a spec from plain values (a parsed table, or JSON of `asdict`); what is missing has its
    default."""
    new = _parse_fields(kind, _table(where or kind.__name__, content), where)
    for f in _fields_of(kind):
        if f.name not in new and f.default is MISSING and f.default_factory is MISSING:
            raise MissingSetting(f"{where}{f.name}")
    return _named(where, lambda: kind(**new))


def _parse_fields(
    kind: type, content: dict[str, object], where: str, old: object = None
) -> dict[str, Any]:
    """Return the values of a table by field; `old` has the values that the tables in it leave
    out."""
    hints = settable(kind)
    new: dict[str, Any] = {}
    # the model first: the learning settings follow it
    for key in sorted(content, key=lambda key: key != "model"):
        if key not in hints:
            near = _near_settings(key, kind, where)
            raise UnknownSetting(f"{where}{key}", "", near, list(hints))
        before = getattr(old, key, None)
        if key == "learning" and "model" in new and before:
            before = before[: new["model"].depth]
        new[key] = _parse(hints[key], before, content[key], f"{where}{key}")
    return new


def _fields_of(kind: type) -> tuple[Field[object], ...]:
    """Return the fields of a spec."""
    return fields(cast("type[DataclassInstance]", kind))


def settable(kind: type) -> dict[str, object]:
    """Return the name and the type of every setting that a table may have; the `kind` of a choice
    is read before."""
    return {f.name: type_hints(kind)[f.name] for f in _fields_of(kind) if f.init}


def _parse(hint: object, old: Any, value: object, name: str) -> object:
    """Return the value of a setting; `old`, if given, has the values that a table leaves out."""
    item = _item_spec(hint)
    if item is not None:
        return _override_items(item, old or (), value, name)
    choices = [spec for spec in _specs(hint) if is_choice(spec)]
    if choices and isinstance(value, dict | str):
        chosen, table = choose_kind(value, choices, name, type(old))
    elif is_dataclass(hint) and not choices:
        chosen = hint
        table = _table(name, value)
    else:
        return convert(value, hint, name)
    if type(old) is chosen:
        return override(old, table, f"{name}.")
    return build(chosen, table, f"{name}.")


def to_toml(recipe: Recipe) -> str:
    """Return a recipe as TOML text, every setting written out."""
    return "\n".join(_lines(recipe, "")) + "\n"


def _lines(spec: DataclassInstance, path: str, header: str = "[{}]") -> list[str]:
    plain = []
    tables = []
    for f in fields(spec):
        value = getattr(spec, f.name)
        if is_choice(value) and not settable(type(value)):
            plain.append(f"{f.name} = {json.dumps(value.kind)}")  # a name alone is short for it
        elif is_dataclass(value) and not isinstance(value, type):
            tables += _lines(value, f"{path}{f.name}.")
        elif _is_list_of_specs(value):
            # as a list, which is read as it stands; tables by number would be differences
            for item in value:
                tables += _lines(item, f"{path}{f.name}.", "[[{}]]")
        elif value is not None:
            plain.append(f"{f.name} = {json.dumps(value)}")  # JSON's scalars and lists are TOML's
    head = ["\n" + header.format(path[:-1])] if path and plain else []
    return head + plain + tables


def _is_list_of_specs(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and is_dataclass(value[0])


def _override_items(
    kind: type, old: tuple[object, ...], value: object, name: str
) -> tuple[object, ...]:
    """Return a tuple of specs from a list of tables, or from tables named by their number or
    `each`."""
    if isinstance(value, list | tuple):
        return tuple(build(kind, item, f"{name}.{i}.") for i, item in enumerate(value, start=1))
    items: dict[int, object] = dict(enumerate(old, start=1))
    table = dict(_table(name, value))
    if "each" in table:
        changes = _table(f"{name}.each", table.pop("each"))
        items = {i: override(item, changes, f"{name}.each.") for i, item in items.items()}
    for key, item in table.items():
        path = f"{name}.{key}."
        if not key.isdecimal() or not 1 <= int(key) <= len(items) + 1:
            raise _not_a_number(kind, name, key, len(items))
        number = int(key)
        if number in items:
            items[number] = override(items[number], _table(path[:-1], item), path)
        else:
            items[number] = build(kind, item, path)
    return tuple(items[i] for i in sorted(items))


def _not_a_number(kind: type, name: str, key: str, items: int) -> InvalidSetting:
    """Return the error for a key that is neither the number of an item nor 'each'."""
    expected = f"a number from 1 to {items + 1}, or 'each'"
    near = [found.path for found in _paths(kind, f"{name}.each.") if found.name == key]
    suggestion = f"Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return InvalidSetting(f"{name}.{key}", expected, suggestion)


def _item_spec(hint: object) -> SpecClass:
    """Return the spec that a tuple holds, or None."""
    item = get_args(hint)[0] if get_origin(hint) is tuple else None
    return item if is_dataclass(item) else None


def _specs(hint: object) -> list[SpecClass]:
    """Return the specs that a setting may be: several, if it is a choice between them."""
    return [member for member in union_members(hint) if is_dataclass(member)]


def _table(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidSetting({name: value}, "a table of settings")
    return value


def _near_settings(key: str, kind: type, where: str) -> list[str]:
    """Find what an unknown key may mean: settings here or deeper down, of this name or spelt
    alike."""
    paths = {f"{where}{name}": name for name in settable(kind)}
    paths |= {found.path: found.name for found in _paths(kind, where)}
    near = difflib.get_close_matches(key, list(dict.fromkeys(paths.values())), n=1, cutoff=0.5)
    return sorted((path for path, name in paths.items() if name in near), key=len)


@functools.cache
def setting_paths(kind: type) -> tuple[str, ...]:
    """Return the full name of every setting below a spec, as `override` and recipe files use it."""
    return tuple(found.path for found in _paths(kind, ""))


class _DescribedSetting(NamedTuple):
    """What the docstring of its own spec says of a setting, and the values that it takes."""

    words: str
    values: str


def described_paths(kind: type) -> dict[str, _DescribedSetting]:
    """Return the full name of every setting below a spec, and what it is."""
    described: dict[str, _DescribedSetting] = {}
    for found in _paths(kind, ""):
        words = docstring(found.spec).entries.get(found.name, found.name)
        values = values_in_words(type_hints(found.spec, ranges=True)[found.name])
        described.setdefault(found.path, _DescribedSetting(words, values))
    return described


def value_of(spec: object, path: str) -> object:
    """Return the value of a setting by its full name; `each` is the last of a list. None where the
    spec has no such setting, because it has another choice."""
    for name in path.split("."):
        if name == "each":
            spec = spec[-1] if isinstance(spec, tuple) and spec else None
        else:
            spec = getattr(spec, name, None)
    return spec


class _SettingPath(NamedTuple):
    """A setting: its full name, its own name, and the spec whose field it is."""

    path: str
    name: str
    spec: type


def _paths(kind: type, where: str) -> Iterator[_SettingPath]:
    """Yield every setting below a spec; the full name of a layer's setting has `each`."""
    for name, hint in settable(kind).items():
        item = _item_spec(hint)
        if item is not None:
            yield from _paths(item, f"{where}{name}.each.")
            continue
        if not is_dataclass(hint) or is_choice(hint):
            yield _SettingPath(f"{where}{name}", name, kind)
        for spec in _specs(hint):
            yield from _paths(spec, f"{where}{name}.")


def _named(where: str, make: Callable[[], Spec]) -> Spec:
    """Call a constructor; if it raises an error, say where in the file its values are."""
    try:
        return make()
    except SpecErrorAt:
        raise  # it has a more exact place
    except SpecError as error:
        if not where:
            raise
        raise SpecErrorAt(where[:-1], error) from None
