"""Commands made from functions: options from the signature and its docstring, settings from dataclasses.

    @command(TrainingOptions, Recipe, flags="device")
    def train(images: str = "digits", *, out: Path, settings: Settings) -> None:
        ...

Parameters before the `*` are arguments, those after it options; the docstring has a table of their words, and `SHARED`
one for the parameters of several commands. The fields of the dataclasses are settings, with the words of their own
docstrings: `--set NAME=VALUE` changes any of them, and the `flags` among them are options of the same name. The
function gets what was given as `settings`, and applies it with `settings.override(spec)`.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

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


Function = Callable[..., None]
UsageError: Any = typer.BadParameter.__mro__[1]  # click's, or that of the copy of click in later versions of typer

SHARED = parse(
    """What parameters of several commands are.

    run        a run folder, a model file (.safetensors), or a model known by name (`whatwhere info` lists them)
    images     a data set by name (digits, which is included, mnist, fashion-mnist or kmnist; mnist:test for its test
               images), an IDX, .npy or .npz file, a picture, a folder of pictures, or a recording (.wav, .csv). A name
               comes first: write ./digits for a folder of that name
    pictures   a picture, a folder of pictures, or a recording (.npy, .csv or .wav)
    model      a model known by name (`whatwhere info` lists them), a run folder or a model file
    preset     how images are inferred. recipe: as in the run, by default by the paper's 50 steps; coding: with
               momentum, until the cost no longer changes, for sparse codes; learned: by the few steps that `whatwhere
               distill` saved next to the model; learned-5: by 5 such steps
    learn      adapt the model to each picture before restoring it
    overwrite  replace files that are there already; never those that are read
    json       print the result as JSON
    quiet      print only the result and errors
    """
).entries


@dataclass(frozen=True)
class Command:
    """A function as a command: the settings of its dataclasses, and which of them are options."""

    function: Function
    known: Mapping[str, Setting]
    flags: tuple[str, ...]

    def add_to(self, app: typer.Typer) -> None:
        """Make it a command of the program, or of a group."""
        name, own = self.function.__name__.rstrip("_"), parse(self.function.__doc__)
        cls = type("SuggestingCommand", (SuggestingCommand,), {"known": self.known})
        app.command(name, cls=cls, help=own.prose, epilog=self._settings_text())(self._with_options(own.entries))

    def _with_options(self, words: Mapping[str, str]) -> Function:
        """The function as typer reads it: every parameter, flag and `--set` with its words."""
        hints, parameters = get_type_hints(self.function), []
        for name, p in inspect.signature(self.function).parameters.items():
            if name == "settings":
                parameters += [flag(self.known[name]) for name in self.flags]
                parameters += [self._set_option()] if len(self.known) > len(self.flags) else []
            else:
                parameters.append(own_parameter(p, hints[name], words))

        def run(**given: Any) -> None:
            if self.known:
                flags = {name: given.pop(name) for name in self.flags}
                given["settings"] = Settings(self.known, flags, given.pop("set", None) or ())
            self.function(**given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    def _set_option(self) -> inspect.Parameter:
        others = [setting for setting in self.known.values() if setting.name not in self.flags]
        names = ", ".join(f"{setting.name}.…" if setting.nested else setting.name for setting in others)
        text = f"Change a setting; repeatable. The settings are {names}."
        return keyword("set", Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=text)], None)

    def _settings_text(self) -> str | None:
        """The settings without an option, with their words, below the options of the help."""
        lines = [
            f"--set {setting.name}={setting.shown_default or setting.metavar}  {sentence(setting.words)}"
            for setting in self.known.values()
            if setting.name not in self.flags and not setting.nested
        ]
        return "\n\n".join(lines) or None


def command(*kinds: Kind, flags: str = "") -> Callable[[Function], Command]:
    """Make a command of a function.

    kinds  dataclasses whose fields are settings, or pairs of a dataclass and the names of some of its fields
    flags  names of settings that are also options
    """
    return lambda function: Command(function, known_settings(kinds), tuple(flags.split()))


class SuggestingCommand(TyperCommand):
    """Suggests a setting in place of an option that does not exist."""

    known: Mapping[str, Setting] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            if hasattr(error, "possibilities"):  # an unknown option
                options = {str(p.name): p.opts[0] for p in self.params if p.param_type_name == "option"}
                near = nearest(error.option_name.lstrip("-").replace("-", "_"), self.known, options)
                spelled = " or ".join(options.get(name, f"--set {name}=VALUE") for name in near)
                error.message += f". Did you mean {spelled}?" if near else "."
                error.possibilities = []
            raise


def own_parameter(p: inspect.Parameter, hint: Any, words: Mapping[str, str]) -> inspect.Parameter:
    """A parameter of the function as an argument or an option."""
    name = p.name.rstrip("_")
    text = sentence(words[name] if name in words else SHARED[name])
    info: Any
    if p.kind is not p.KEYWORD_ONLY:
        info = typer.Argument(metavar=name.upper(), help=text, show_default=p.default is not None)
    else:
        info = typer.Option(spelled(name, p.default), help=text)
    return keyword(p.name, Annotated[hint, info], p.default)


def flag(setting: Setting) -> inspect.Parameter:
    """A setting as an option: text, read as `--set` reads it, so that it is checked by its dataclass alone."""
    text = sentence(setting.words)
    if setting.hint is bool:
        option = typer.Option(spelled(setting.name, setting.default), help=text, show_default=False)
        return keyword(setting.name, Annotated[bool | None, option], None)
    if setting.shown_default and "efault" not in text:
        text += f" Default: {setting.shown_default}."
    several = get_origin(setting.hint) is tuple
    option = typer.Option(spelled(setting.name), help=text, metavar=setting.metavar)
    return keyword(setting.name, Annotated[list[str] | None if several else str | None, option], None)


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def spelled(name: str, default: Any = None) -> str:
    """The option of a name; what is on by default can be switched off."""
    dashed = name.replace("_", "-")
    return f"--{dashed}/--no-{dashed}" if default is True else f"--{dashed}"


def sentence(text: str) -> str:
    first = text[0].upper() if text[0].isascii() else text[0]  # β stays β
    return first + text[1:] + ("" if text.endswith((".", "?", "…")) else ".")
