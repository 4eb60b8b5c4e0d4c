"""Commands made from functions: options from the signature and its docstring, settings from
dataclasses.

    @command(TrainingOptions, Recipe, flags="device")
    def train(images: str = "digits", *, out: Path, settings: Settings) -> None:
        ...

Parameters before the `*` are arguments, those after it options; the docstring has a table of their
words, and `SHARED` one for the parameters of several commands. The fields of the dataclasses are
settings, with the words of their own docstrings: `--set NAME=VALUE` changes any of them, and the
`flags` among them are options of the same name. The function gets what was given as `settings`, and
applies it with `settings.override(spec)`.
"""

import difflib
import inspect
import json
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
Kind = Any  # a dataclass, or a pair of it and the names of some fields
METAVARS = {int: "N", float: "NUMBER"}
app = typer.Typer(
    name="whatwhere",
    help=(
        "Learn sparse, layered representations of images without labels: what is there, and where."
    ),
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    # plain help: rich takes as long to import as all the rest
    rich_markup_mode=None,
)


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
        if get_origin(self.hint) is tuple:
            return [self.hint]
        members = get_args(self.hint) or (self.hint,)
        return [hint for hint in members if hint is not type(None)]

    @property
    def metavar(self) -> str:
        """What stands for the value in the help: its words, or its kind."""
        words = [
            word
            for hint in (self.hint, *self.types)
            if get_origin(hint) is Literal
            for word in get_args(hint)
        ]
        if words:
            return "|".join(words)
        return METAVARS.get(self.types[0], "TEXT")

    @property
    def shown_default(self) -> str:
        return "" if self.default in (None, ()) else str(self.default)


def known_settings(kinds: Iterable[Kind]) -> dict[str, Setting]:
    """The settings of dataclasses by name; of a pair (dataclass, 'name name') only those."""
    known = {}
    for entry in kinds:
        kind, names = entry if isinstance(entry, tuple) else (entry, "")
        words = parse(kind.__doc__).entries
        hints = type_hints(kind)
        for f in fields(kind):
            if f.init and (not names or f.name in names.split()):
                default = getattr(kind, f.name, None)
                known[f.name] = Setting(f.name, kind, hints[f.name], default, words[f.name])
    return known


class Settings:
    """What was given by flags and by `--set`; of a setting that was given twice the last value."""

    def __init__(
        self, known: Mapping[str, Setting], flags: Mapping[str, Any], changes: Sequence[str]
    ) -> None:
        self.known = known
        given = {name: value for name, value in flags.items() if value is not None}
        given.update(self._split(change) for change in changes)
        self.table = parse_toml(
            "\n".join(f"{name} = {self._toml(name, value)}" for name, value in given.items()),
            "--set",
        )

    def of(self, kind: type[Spec]) -> Spec:
        """A spec of this kind with what was given, and its defaults otherwise."""
        return self.override(kind())

    def override(self, spec: Spec) -> Spec:
        """The spec with what was given for its fields."""
        own = {
            name: value for name, value in self.table.items() if self.known[name].kind is type(spec)
        }
        return override(spec, own)

    def given(self, name: str) -> bool:
        """Whether a setting, or one inside it, was given."""
        return name in self.table

    def _split(self, change: str) -> tuple[str, str]:
        """The name and the value of NAME=VALUE."""
        name, equals, value = change.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not all(
            part.isidentifier() or part.isdecimal() for part in name.split(".")
        ):
            example = "learning.each.epochs" if "learning" in self.known else next(iter(self.known))
            raise SpecError(
                f"Cannot read --set {change[:80]!r}. Expected NAME=VALUE, such as {example}=5."
            )
        if name.partition(".")[0] not in self.known:
            near = " or ".join(map(repr, nearest(name, self.known)))
            meant = (
                f"Did you mean {near}?" if near else f"Its settings are {', '.join(self.known)}."
            )
            raise SpecError(f"--set {change[:80]!r}: this command has no setting {name}. {meant}")
        return name, value

    def _toml(self, name: str, value: str | bool) -> str:
        """A value in TOML: text stays as it is where text is expected, and a word needs no
        quotes."""
        if isinstance(value, bool):
            return str(value).lower()
        if name in self.known and str in self.known[name].types:
            return json.dumps(value.strip("'\""), ensure_ascii=False)
        try:
            parse_toml(f"{name} = {value}", "--set")
        except SpecError:
            return json.dumps(value, ensure_ascii=False)
        return value


def nearest(name: str, known: Mapping[str, Setting], others: Iterable[str] = ()) -> list[str]:
    """The settings that a wrong name may mean: of this name, further down, or of one that is spelt
    alike.

    others  names that it may mean as well; if one of them is nearer, it is the result
    """
    last = {path: path.rpartition(".")[2] for setting in known.values() for path in setting.paths}
    wanted = name.rpartition(".")[2]
    names = dict.fromkeys([*others, *last.values()])
    best = [wanted] if wanted in names else difflib.get_close_matches(wanted, names, n=1)
    return [path for path in last if last[path] in best] or best


Function = Callable[..., None]
# click's, or that of the copy of click in later versions of typer
UsageError: Any = typer.BadParameter.__mro__[1]

SHARED = parse("""What parameters of several commands are.

    run        a run folder, a model file (.safetensors), or a model known by name (`whatwhere
               info` lists them)
    images     a data set by name (digits, which is included, mnist, fashion-mnist or kmnist;
               mnist:test for its test images), an IDX, .npy or .npz file, a picture, a folder of
               pictures, or a recording (.wav, .csv). A name comes first: write ./digits for a
               folder of that name
    pictures   a picture, a folder of pictures, or a recording (.npy, .csv or .wav)
    model      a model known by name (`whatwhere info` lists them), a run folder or a model file
    preset     how images are inferred. recipe: as in the run, by default by the paper's 50 steps;
               coding: with momentum, until the cost no longer changes, for sparse codes; learned:
               by the few steps that `whatwhere distill` saved next to the model; learned-5: by 5
               such steps
    overwrite  replace files that are there already; never those that are read
    json       print the result as JSON
    quiet      print only the result and errors
    """).entries


def command(
    *kinds: Kind, flags: str = "", app: typer.Typer = app
) -> Callable[[Function], Function]:
    """Make a command of a function.

    kinds  dataclasses whose fields are settings, or pairs of a dataclass and the names of some of
           its fields
    flags  names of settings that are also options
    app    the program, or a group of its commands
    """
    known = known_settings(kinds)
    chosen = flags.split()

    def add(function: Function) -> Function:
        name = function.__name__.rstrip("_")
        own = parse(function.__doc__)
        hints = get_type_hints(function)
        parameters: list[inspect.Parameter] = []
        for p in inspect.signature(function).parameters.values():
            if p.name == "settings":
                parameters += settings_parameters(known, chosen)
            else:
                parameters.append(own_parameter(p, hints[p.name], own.entries))

        def run(**given: Any) -> None:
            if known:
                values = {name: given.pop(name) for name in chosen}
                given["settings"] = Settings(known, values, given.pop("set", None) or ())
            function(**given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        cls = type("SuggestingCommand", (SuggestingCommand,), {"known": known})
        # the list of commands shows `short_help` whole; it cuts what it takes from `help`
        app.command(
            name,
            cls=cls,
            help=own.prose,
            short_help=own.prose.split("\n\n")[0],
            epilog=settings_text(known, chosen),
        )(run)
        return function

    return add


def settings_parameters(
    known: Mapping[str, Setting], flags: Sequence[str]
) -> list[inspect.Parameter]:
    """The flags, and `--set` for all others."""
    others = [setting for name, setting in known.items() if name not in flags]
    names = ", ".join(f"{setting.name}.…" if setting.nested else setting.name for setting in others)
    text = f"Change a setting; repeatable. The settings are {names}."
    hint = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=text)]
    parameters = [flag(known[name]) for name in flags]
    if others:
        parameters.append(keyword("set", hint, None))
    return parameters


def settings_text(known: Mapping[str, Setting], flags: Sequence[str]) -> str | None:
    """The settings without an option, with their words, below the options of the help."""
    lines = [
        f"--set {name}={setting.shown_default or setting.metavar}  {sentence(setting.words)}"
        for name, setting in known.items()
        if name not in flags and not setting.nested
    ]
    return "\n\n".join(lines) or None


class SuggestingCommand(TyperCommand):
    """Suggests a setting in place of an option that does not exist."""

    known: Mapping[str, Setting] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            if hasattr(error, "possibilities"):  # an unknown option
                options = {
                    str(p.name): p.opts[0] for p in self.params if p.param_type_name == "option"
                }
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
    """A setting as an option: text, read as `--set` reads it, so that it is checked by its
    dataclass alone."""
    text = sentence(setting.words)
    if setting.hint is bool:
        option = typer.Option(spelled(setting.name, setting.default), help=text, show_default=False)
        return keyword(setting.name, Annotated[bool | None, option], None)
    if setting.shown_default and "efault" not in text:
        text += f" Default: {setting.shown_default}."
    option = typer.Option(spelled(setting.name), help=text, metavar=setting.metavar)
    return keyword(setting.name, Annotated[str | None, option], None)


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def spelled(name: str, default: Any = None) -> str:
    """The option of a name; what is on by default can be switched off."""
    dashed = name.replace("_", "-")
    return f"--{dashed}/--no-{dashed}" if default is True else f"--{dashed}"


def sentence(text: str) -> str:
    first = text[0].upper() if text[0].isascii() else text[0]  # β stays β
    return first + text[1:] + ("" if text.endswith((".", "?", "…")) else ".")
