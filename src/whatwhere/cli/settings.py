"""Settings of a command: the fields of dataclasses, changed by flags and by `--set NAME=VALUE`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args, get_origin

from whatwhere.errors import SpecError
from whatwhere.spec.checks import type_hints
from whatwhere.spec.docstrings import parse
from whatwhere.spec.toml import override, parse_toml, setting_paths

Spec = TypeVar("Spec")
Kind = Any  # a dataclass, or a value of one, which has other defaults; or a pair of it and the names of some fields
METAVARS = {int: "N", float: "NUMBER"}


@dataclass(frozen=True)
class Setting:
    """A field of a dataclass: its type, its default, and what its docstring says."""

    name: str
    kind: type
    hint: Any
    default: Any
    words: str

    @property
    def paths(self) -> list[str]:
        """The names that `--set` knows: its own, or those of the settings inside it."""
        return [path for path in setting_paths(self.kind) if path.partition(".")[0] == self.name]

    @property
    def nested(self) -> bool:
        """Whether it is a spec, or a list of them, whose own settings are meant."""
        return self.paths != [self.name]

    @property
    def types(self) -> list[Any]:
        """The types that a value may have besides None."""
        members = (self.hint,) if get_origin(self.hint) is tuple else get_args(self.hint) or (self.hint,)
        return [hint for hint in members if hint is not type(None)]

    @property
    def metavar(self) -> str:
        literals = [hint for hint in (self.hint, *self.types) if get_origin(hint) is Literal]
        return "|".join(word for hint in literals for word in get_args(hint)) or METAVARS.get(self.types[0], "TEXT")

    @property
    def shown_default(self) -> str:
        return "" if self.default in (None, ()) else str(self.default)


def known_settings(kinds: Iterable[Kind]) -> dict[str, Setting]:
    """The settings of dataclasses by name; of a pair (dataclass, 'name name') only those."""
    known = {}
    for entry in kinds:
        source, names = entry if isinstance(entry, tuple) else (entry, "")
        kind = source if isinstance(source, type) else type(source)
        words, hints = parse(kind.__doc__).entries, type_hints(kind)
        for f in fields(kind):
            if f.init and (not names or f.name in names.split()):
                known[f.name] = Setting(f.name, kind, hints[f.name], getattr(source, f.name, None), words[f.name])
    return known


class Settings:
    """What was given by flags and by `--set`."""

    def __init__(self, known: Mapping[str, Setting], flags: Mapping[str, Any], changes: Sequence[str]) -> None:
        self.known = known
        self.tables: list[dict[str, Any]] = [{}]
        given = [{name: self._value(name, value)} for name, value in flags.items() if value not in (None, [])]
        for table in (*given, *map(self._parse, changes)):
            if not merge(self.tables[-1], table):  # a list and a change of one of its items: one after the other
                self.tables.append(table)

    def of(self, kind: type[Spec]) -> Spec:
        """A spec of this kind with what was given, and its defaults otherwise."""
        return self.override(kind())

    def override(self, spec: Spec) -> Spec:
        """The spec with what was given for its fields."""
        for table in self.tables:
            spec = override(spec, {name: v for name, v in table.items() if self.known[name].kind is type(spec)})
        return spec

    def given(self, name: str) -> bool:
        """Whether a setting, or one inside it, was given."""
        return any(name in table for table in self.tables)

    def _parse(self, change: str) -> dict[str, Any]:
        """NAME=VALUE as a table."""
        name, equals, value = change.partition("=")
        name = name.strip().replace("-", "_")
        first = name.partition(".")[0]
        if not equals or not all(part.isidentifier() or part.isdecimal() for part in name.split(".")):
            example = "learning.each.epochs" if "learning" in self.known else next(iter(self.known))
            raise SpecError(f"--set {change[:80]!r} was given; expected NAME=VALUE, such as {example}=5")
        if first not in self.known:
            near = " or ".join(map(repr, nearest(name, self.known)))
            meant = f"did you mean {near}?" if near else f"the settings are {', '.join(self.known)}"
            raise SpecError(f"--set {change[:80]!r} was given; {name} is not a setting of this command; {meant}")
        return {name: self._value(name, value)} if name == first else parse_text(name, value)

    def _value(self, name: str, value: Any) -> Any:
        """A value of a setting; text stays as it is where text is expected."""
        if isinstance(value, bool):
            return value
        if isinstance(value, list):
            return [item if str in get_args(self.known[name].hint) else parse_text(name, item)[name] for item in value]
        return value.strip("'\"") if str in self.known[name].types else parse_text(name, value)[name]


def parse_text(name: str, value: str) -> dict[str, Any]:
    """NAME = VALUE as a parsed TOML table; a word needs no quotes."""
    for text in (f"{name} = {value}", f"{name} = {value!r}"):
        try:
            return parse_toml(text, "--set")
        except SpecError:
            continue
    raise SpecError(f"{name}={value[:80]!r} was given; expected a number, a word or a list")


def merge(table: dict[str, Any], changes: dict[str, Any]) -> bool:
    """Put changes into a table; False if one has a value where the other has a table."""
    for key, value in changes.items():
        old = table.setdefault(key, value)
        if isinstance(old, dict) and isinstance(value, dict):
            if not merge(old, value):
                return False
        elif isinstance(old, dict) or isinstance(value, dict):
            return False
        table[key] = old if isinstance(old, dict) else value
    return True


def nearest(name: str, known: Mapping[str, Setting], others: Iterable[str] = ()) -> list[str]:
    """The settings that a wrong name may mean: of this name, further down, or of one that is spelt alike.

    others  names that it may mean as well; if one of them is nearer, it is the result
    """
    last = {path: path.rpartition(".")[2] for setting in known.values() for path in setting.paths}
    wanted, names = name.rpartition(".")[2], dict.fromkeys([*others, *last.values()])
    best = [wanted] if wanted in names else difflib.get_close_matches(wanted, names, n=1)
    return [path for path in last if last[path] in best] or best
