"""The command line: a small file for each command; torch is imported only when a command runs."""

import warnings
from importlib import import_module
from typing import Annotated

import typer

from whatwhere.cli.command import app
from whatwhere.errors import WhatwhereError, printable

# as in help
MODULES = "demo explore train encode classify figures distill restoration info bench anomaly"
for module in MODULES.split():
    import_module(f"whatwhere.cli.{module}")


def _print_version(requested: bool) -> None:
    if requested:
        from whatwhere import __version__

        typer.echo(f"whatwhere {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run a command. An error that a user can fix is printed as one message, without a
    traceback."""
    warnings.showwarning = _print_warning
    try:
        app()
    except (
        WhatwhereError,
        OSError,
    ) as error:  # OSError: a disk, a folder or a file that no command foresaw
        message = str(error)
        if isinstance(error, OSError) and error.strerror:
            message = printable(
                f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            )
        typer.secho(f"error: {message}", fg="red", err=True)
        raise SystemExit(2) from None


_WARNED: set[str] = set()


def _print_warning(message: Warning | str, *place: object, **more: object) -> None:
    """Print a warning to the user in one line, and only once."""
    if str(message) not in _WARNED:
        _WARNED.add(str(message))
        typer.secho(f"warning: {printable(message)}", fg="yellow", err=True)
