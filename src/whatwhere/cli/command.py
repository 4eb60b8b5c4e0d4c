"""Commands made from functions: options from the signature and its docstring, settings from dataclasses.

    @command(TrainingOptions, Recipe, flags="device")
    def train(images: str = "digits", *, out: Path, settings: Settings) -> None:
        ...

Parameters before the `*` are arguments, those after it options; the docstring has a table of their words, and `SHARED`
one for the parameters of several commands. The fields of the dataclasses are settings, with the words of their own
docstrings: `--set NAME=VALUE` changes any of them, and the `flags` among them are options of the same name. The
function gets what was given as `settings`, and applies it with `settings.override(spec)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from whatwhere.cli.settings import Kind, Setting, Settings, known_settings, nearest
from whatwhere.spec.docstrings import parse

Function = Callable[..., None]
UsageError: Any = typer.BadParameter.__mro__[1]  # click's, or that of the copy of click in later versions of typer

SHARED = parse(
    """What parameters of several commands are.

    run        a run folder, a model file (.safetensors), or a model known by name (`whatwhere info` lists them)
    images     a data set by name (digits, which is included, mnist, fashion-mnist or kmnist; mnist:test for its test
               images), an IDX, .npy or .npz file, a picture or a folder of pictures. A name comes first: write ./digits
               for a folder of that name
    pictures   a picture, or a folder of pictures
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
