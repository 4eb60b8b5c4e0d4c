"""Commands made from functions: options from the signature and its docstring, settings from
dataclasses.

    @command(TrainingOptions, Recipe, flags="device")
    def train(images: str = "digits", *, out: Path, settings: Settings) -> None:
        ...

Parameters before the `*` are arguments, those after it options. A table in the docstring describes
them; `SHARED` describes the parameters that several commands share. Lines of the docstring that
begin with `$` are examples, which the help shows at its end. The fields of the dataclasses are
settings, which the docstrings of the dataclasses describe: `--set NAME=VALUE` changes any of them,
`--help-settings` lists them, and those in `flags` are also options of the same name. The function
gets what was given as `settings`, and applies it with `settings.override(spec)`.
"""

import difflib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from whatwhere.commands.old_forms import Grammar, OldForm
from whatwhere.errors import InvalidSetting, SpecError
from whatwhere.spec.checks import type_hints, value_in_words
from whatwhere.spec.docstrings import docstring, parse
from whatwhere.spec.toml import described_paths, override, parse_toml, setting_paths, value_of

Spec = TypeVar("Spec")
Kind = object  # a dataclass, or a pair (dataclass, names of some fields)
_ARGUMENTS = {"images": "pictures", "run": "model"}  # how the help calls arguments
_METAVARS: dict[object, str] = {int: "N", float: "NUMBER", Path: "PATH", list[str]: "NAME"}


class Program(TyperGroup):
    """Lists its commands in sections, in the order of the sections.

    Parameters
    ----------
    sections
        the names of commands by the title of their section
    """

    sections: ClassVar[dict[str, Sequence[str]]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands by section; those without one come last."""
        listed = [name for names in self.sections.values() for name in names]
        return [*listed, *(name for name in super().list_commands(ctx) if name not in listed)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list of commands for every section."""
        for title, names in self.sections.items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                assert command is not None, name
                rows.append((name, command.get_short_help_str(limit=200)))
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="whatwhere",
    cls=Program,
    help=(
        "Learn from pictures or recordings, without labels, which features they are made of, and"
        " where each lies. Then sort the pictures with a few labels, find defects, remove noise, or"
        " take them apart."
    ),
    epilog=(
        "Examples:\n\n\b\n"
        "  whatwhere label pictures/\n"
        "  whatwhere anomaly odd pictures/ --out odd\n"
        "  whatwhere denoise noisy.png --out clean.png\n"
        "  whatwhere train recording.wav --out runs/signals\n"
        "\n`whatwhere COMMAND --help` shows the options of a command, with examples."
    ),
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    # plain help: rich takes as long to import as everything else
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class Setting:
    """A field of a dataclass: its type, its default, and what its docstring says."""

    name: str
    kind: type
    hint: object
    default: object
    words: str

    @property
    def paths(self) -> list[str]:
        """The names that `--set` knows: its own, or the names of the settings inside it."""
        return [path for path in setting_paths(self.kind) if path.partition(".")[0] == self.name]

    @property
    def nested(self) -> bool:
        """Whether it is a spec, or a list of specs, whose fields are the actual settings."""
        return self.paths != [self.name]

    @property
    def types(self) -> list[object]:
        """The types that a value may have besides None."""
        return _value_types(self.hint)

    @property
    def metavar(self) -> str:
        """The placeholder for the value in the help: its possible values, or its type."""
        return metavar(self.hint)

    @property
    def shown_default(self) -> str:
        return "" if self.default in (None, ()) else value_in_words(self.default)


def _value_types(hint: object) -> list[object]:
    """Return the types besides None in a type hint."""
    if get_origin(hint) in (tuple, list):
        return [hint]
    members = get_args(hint) or (hint,)
    return [member for member in members if member is not type(None)]


def metavar(hint: object) -> str:
    """Return the placeholder for a value of this type in the help: its possible values, or its
    type."""
    words = [
        word
        for member in (hint, *_value_types(hint))
        if get_origin(member) is Literal
        for word in get_args(member)
    ]
    if words:
        return "|".join(words)
    return _METAVARS.get(_value_types(hint)[0], "TEXT")


def known_settings(kinds: Iterable[Kind]) -> dict[str, Setting]:
    """Return the settings of dataclasses by name; for a pair (dataclass, 'name name'), only the
    named ones."""
    known = {}
    for entry in kinds:
        kind, names = entry if isinstance(entry, tuple) else (entry, "")
        words = docstring(kind).entries
        hints = type_hints(kind)
        for f in fields(kind):
            if f.init and (not names or f.name in names.split()):
                default = getattr(kind, f.name, None)
                known[f.name] = Setting(f.name, kind, hints[f.name], default, words[f.name])
    return known


class Settings:
    """The settings given by flags and by `--set`; if one is given twice, the last value counts."""

    def __init__(
        self,
        known: Mapping[str, Setting],
        flags: Mapping[str, str | bool | None],
        changes: Sequence[str],
    ) -> None:
        self.known = known
        given = {name: value for name, value in flags.items() if value is not None}
        given.update(self._split(change) for change in changes)
        self.table = parse_toml(
            "\n".join(f"{name} = {self._toml(name, value)}" for name, value in given.items()),
            "--set",
        )

    def of(self, kind: type[Spec]) -> Spec:
        """Return a spec of this kind with the given settings, and defaults for all others."""
        return self.override(kind())

    def override(self, spec: Spec) -> Spec:
        """Return the spec with the given settings in place of its own."""
        own = {
            name: value for name, value in self.table.items() if self.known[name].kind is type(spec)
        }
        return override(spec, own)

    def given(self, name: str) -> bool:
        """Tell whether a setting, or one inside it, was given."""
        return name in self.table

    def _split(self, change: str) -> tuple[str, str]:
        """Return the name and the value of NAME=VALUE."""
        name, equals, value = change.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not all(
            part.isidentifier() or part.isdecimal() for part in name.split(".")
        ):
            example = "learning.each.epochs" if "learning" in self.known else next(iter(self.known))
            raise InvalidSetting({"--set": change[:80]}, f"NAME=VALUE, such as {example}=5")
        if name.partition(".")[0] not in self.known:
            near = " or ".join(map(repr, nearest(name, self.known)))
            meant = (
                f"Did you mean {near}?" if near else f"Its settings are {', '.join(self.known)}."
            )
            raise SpecError(f"--set {change[:80]!r}: this command has no setting {name}. {meant}")
        return name, value

    def _toml(self, name: str, value: str | bool) -> str:
        """Return a value in TOML: where text is expected, it stays unchanged, and a word needs no
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
    """Return the settings that an unknown name may mean: settings of this name at a deeper level,
    or those that are spelt alike.

    Parameters
    ----------
    others
        other names that it may mean; if one of them is nearer, it is the result
    """
    last = {path: path.rpartition(".")[2] for setting in known.values() for path in setting.paths}
    wanted = name.rpartition(".")[2]
    names = dict.fromkeys([*others, *last.values()])
    best = [wanted] if wanted in names else difflib.get_close_matches(wanted, names, n=1)
    return [path for path in last if last[path] in best] or best


Function = Callable[..., None]
# the class of click, or of the copy of click in later versions of typer
UsageError: Any = typer.BadParameter.__mro__[1]

SHARED = parse("""Parameters that several commands share.

    run        a run folder, a model file (.safetensors), or the name of a model (`whatwhere info`
               lists them)
    images     a folder of pictures, a picture, a recording (.wav, .csv), an .npy, .npz or IDX
               file, or the name of a data set: digits (included), mnist, fashion-mnist or kmnist;
               mnist:test has its test images. Write ./digits for a folder of that name
    pictures   a picture, a folder of pictures, or a recording (.npy, .csv or .wav)
    model      the name of a model (`whatwhere info` lists them), a run folder or a model file
    preset     how to infer features. recipe: as in the run, by default with the paper's 50 steps.
               coding: with momentum until the cost no longer changes, for sparse codes. learned:
               with the few steps that `whatwhere distill` saved next to the model; learned-5: the
               version with 5 steps
    overwrite  replace existing files, but never files that the command reads
    json       print the result as JSON
    quiet      print only the result and errors
    """).entries


def command(
    *kinds: Kind, flags: str = "", old: Sequence[OldForm] = (), app: typer.Typer = app
) -> Callable[[Function], Function]:
    """Make a command of a function.

    Parameters
    ----------
    kinds
        dataclasses whose fields are settings, or pairs of a dataclass and the names of some of its
        fields
    flags
        names of settings that are also options
    old
        forms of the command line that answer with the line to type now
    app
        the program, or a group of its commands
    """
    known = known_settings(kinds)
    chosen = flags.split()

    def add(function: Function) -> Function:
        name = function.__name__.rstrip("_")
        own = docstring(function)
        hints = get_type_hints(function)
        parameters: list[inspect.Parameter] = []
        for p in inspect.signature(function).parameters.values():
            if p.name == "settings":
                parameters += _settings_parameters(known, chosen)
            else:
                parameters.append(_own_parameter(p, hints[p.name], own.entries))

        def run(**given: Any) -> None:
            given.pop("help_settings", None)
            if known:
                values = {name: given.pop(name) for name in chosen}
                given["settings"] = Settings(known, values, given.pop("set", None) or ())
            function(**given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        content = {"known": known, "flags": chosen, "examples": own.shell, "old": old}
        cls = type("_SuggestingCommand", (_SuggestingCommand,), content)
        # the list of commands shows all of `short_help`, but cuts a text from `help`
        app.command(
            name,
            cls=cls,
            help=own.prose,
            short_help=own.prose.split("\n\n")[0],
            epilog=_examples_text(own.shell),
        )(run)
        return function

    return add


def _settings_parameters(
    known: Mapping[str, Setting], flags: Sequence[str]
) -> list[inspect.Parameter]:
    """Return the flags, `--set` for all other settings, and `--help-settings`, which lists
    those."""
    parameters = [flag(known[name]) for name in flags]
    others = [setting for name, setting in known.items() if name not in flags]
    if not others:
        return parameters
    change = typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; repeatable.")

    def show(context: typer.Context, asked: bool) -> None:
        if asked:
            formatter = context.make_formatter()
            formatter.write("Settings that --set NAME=VALUE changes:\n\n")
            if any(setting.nested for setting in others):
                formatter.write(
                    "The run or --recipe sets the defaults of the recipe's settings. This list"
                    " shows the values in\nthe paper's recipe; `each` means all layers, and the"
                    " list shows the value of layer 2.\n\n"
                )
            formatter.write_dl(list(settings_rows(others)))
            typer.echo(formatter.getvalue().rstrip("\n"))
            raise typer.Exit

    listing = typer.Option(
        "--help-settings",
        help="List the settings and exit.",
        callback=show,
        is_eager=True,
        show_default=False,
    )
    return [
        *parameters,
        _keyword("set", Annotated[list[str] | None, change], None),
        _keyword("help_settings", Annotated[bool, listing], False),
    ]


def settings_rows(settings: Iterable[Setting]) -> Iterator[tuple[str, str]]:
    """Yield settings with their defaults, what they mean and the values that they take. The
    defaults of the settings inside a recipe come from that recipe; the paper's are shown."""
    for setting in settings:
        described = described_paths(setting.kind)
        if setting.nested:
            for path, (words, values) in described.items():
                if path.partition(".")[0] == setting.name:
                    yield path, sentence(words) + noted(values, _paper_value(setting.kind, path))
        else:
            yield (
                f"{setting.name}={setting.shown_default or setting.metavar}",
                sentence(setting.words) + noted(described[setting.name].values),
            )


def _paper_value(kind: type, path: str) -> str:
    """Return the value of a setting in the paper's recipe, where it has one."""
    value = value_of(kind.paper(), path) if hasattr(kind, "paper") else None
    return "" if value in (None, ()) else f"recipe paper: {value_in_words(value)}"


def noted(*notes: str) -> str:
    """Return notes at the end of a description."""
    given = [note for note in notes if note and note != "text"]
    return f" ({'; '.join(given)})" if given else ""


def _examples_text(examples: Sequence[str]) -> str | None:
    """Return the examples, one a line, below the options of the help."""
    if not examples:
        return None
    lines = "\n".join(f"  {line}" for line in examples)
    return f"Examples:\n\n\b\n{lines}"  # click leaves the lines below \b as they are


class _SuggestingCommand(TyperCommand):
    """Suggests a setting in place of an option that does not exist.

    Parameters
    ----------
    known
        its settings
    flags
        the names of those that are also options
    examples
        command lines for its help
    old
        forms of the command line that answer with the line to type now
    """

    known: Mapping[str, Setting] = {}
    flags: Sequence[str] = ()
    examples: Sequence[str] = ()
    old: Sequence[OldForm] = ()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: what is required stands without braces."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        grammar = Grammar(
            command=ctx.command_path.split()[1:],
            takes=frozenset(
                name
                for p in self.params
                if p.param_type_name == "option" and not getattr(p, "is_flag", False)
                for name in p.opts
            ),
        )
        for old in self.old:
            if line := old.new_line(args, grammar):
                raise UsageError(f"This command line has changed. Run: {line}")
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


def _own_parameter(
    p: inspect.Parameter, hint: object, words: Mapping[str, str]
) -> inspect.Parameter:
    """Return a parameter of the function as an argument or an option."""
    name = p.name.rstrip("_")
    text = sentence(words[name] if name in words else SHARED[name])
    info: object
    if p.kind is not p.KEYWORD_ONLY:
        shown = _ARGUMENTS.get(name, name).upper()
        info = typer.Argument(metavar=shown, help=text, show_default=p.default is not None)
    else:
        value = None if hint is bool else metavar(hint)
        info = typer.Option(spelled(name, p.default), help=text, metavar=value)
    return _keyword(p.name, Annotated[hint, info], p.default)


def flag(setting: Setting) -> inspect.Parameter:
    """Return a setting as an option. Its value is text that is read as `--set` reads it, so that
    only the dataclass checks it."""
    text = sentence(setting.words)
    if setting.hint is bool:
        option = typer.Option(spelled(setting.name, setting.default), help=text, show_default=False)
        return _keyword(setting.name, Annotated[bool | None, option], None)
    if setting.shown_default and "efault" not in text:
        text += f" Default: {setting.shown_default}."
    option = typer.Option(spelled(setting.name), help=text, metavar=setting.metavar)
    return _keyword(setting.name, Annotated[str | None, option], None)


def _keyword(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def spelled(name: str, default: object = None) -> str:
    """Return the option for a name; a flag that is on by default can be switched off."""
    dashed = name.replace("_", "-")
    return f"--{dashed}/--no-{dashed}" if default is True else f"--{dashed}"


def sentence(text: str) -> str:
    first = text[0].upper() if text[0].isascii() else text[0]  # β stays β
    return first + text[1:] + ("" if text.endswith((".", "?", "…")) else ".")
