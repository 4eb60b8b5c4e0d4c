"""The command line: a small file for each command; torch is imported only when a command runs."""

import sys
import warnings
from importlib import import_module
from typing import Annotated, NoReturn, TextIO

import typer

from whatwhere.cli.command import Command

MODULES = "demo explore train encode decode classify label figures distill restoration info bench"  # as help lists them
app = typer.Typer(
    name="whatwhere",
    help="Learn sparse, layered representations of images without labels: what is there, and where.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
for module in MODULES.split():
    for each in list(vars(import_module(f"whatwhere.cli.{module}")).values()):
        if isinstance(each, Command):
            each.add_to(app)
app.add_typer(import_module("whatwhere.cli.anomaly").group)


def _print_version(requested: bool) -> None:
    if requested:
        from whatwhere import __version__

        typer.echo(f"whatwhere {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run a command. An error that a user can fix is printed as one message, without a traceback."""
    from whatwhere.errors import WhatwhereError

    warnings.showwarning = _print_warning
    try:
        app()
    except WhatwhereError as error:
        _fail(str(error))
    except OSError as error:  # a disk, a folder or a file that no command foresaw
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))


def _fail(message: str) -> NoReturn:
    from whatwhere.errors import printable

    typer.secho("error: " + "\n".join(map(printable, message.split("\n"))), fg="red", err=True)
    raise SystemExit(2) from None


_WARNED: set[str] = set()


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings of this program are for its user: one line, once. Others keep their place in the code."""
    from whatwhere.errors import printable

    if category is UserWarning or category.__module__.startswith("whatwhere"):
        if str(message) not in _WARNED:
            _WARNED.add(str(message))
            typer.secho(f"warning: {printable(message)}", fg="yellow", err=True)
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))
