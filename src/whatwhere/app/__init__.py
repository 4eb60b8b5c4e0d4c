"""The program: the commands of every use. torch is imported only when a command runs."""

import io
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Annotated, TextIO

import typer

from whatwhere.commands.builder import Program, app
from whatwhere.errors import ConvergenceWarning, ReportedError, WhatwhereError, printable

COMMANDS = (
    "app.demo",
    "explorer.command",
    "labelling.command",
    "app.train",
    "codes.command",
    "signals.command",
    "classification.describe_command",
    "labelling.classify_command",
    "classification.svm_command",
    "app.figures",
    "app.distill",
    "restoration.command",
    "app.info",
    "app.download",
    "app.bench",
    "anomaly.command",
)
for module in COMMANDS:
    import_module(f"whatwhere.{module}")
Program.sections = {
    "Do": ("label", "classify", "anomaly", "denoise", "inpaint", "events"),
    "Model": ("train", "encode", "decode", "describe", "svm", "distill"),
    "Look": ("demo", "explore", "figures"),
    "Admin": ("info", "download", "bench"),
}


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
    """Take options of the program itself."""


def main() -> None:
    """Run a command. An error that a user can fix is printed as one message, without a
    traceback."""
    print_any_character(sys.stdout, sys.stderr)
    warnings.showwarning = _print_warning
    warnings.simplefilter("always", ConvergenceWarning)  # so that all of them are counted
    try:
        app()
    except (
        WhatwhereError,
        OSError,
    ) as error:  # OSError: a disk, folder or file error that no command expected
        if isinstance(error, ReportedError):
            raise SystemExit(2) from None
        message = str(error)
        if isinstance(error, OSError) and error.strerror:
            message = printable(
                f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            )
        typer.secho(f"Error: {message}", fg="red", err=True)
        raise SystemExit(2) from None
    finally:
        _count_unconverged()


def print_any_character(*streams: TextIO) -> None:
    """Print what the encoding of a terminal lacks, such as λ in Latin-1, by its number."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # a terminal that is open for reading as well
                stream.reconfigure(errors="backslashreplace")


_WARNED: set[str] = set()
_UNCONVERGED: list[str] = []


def _print_warning(message: Warning | str, *place: object, **more: object) -> None:
    """Print a warning in one line, and only once. For batches that did not converge, print the
    first warning and count the others."""
    if isinstance(message, ConvergenceWarning):
        _UNCONVERGED.append(str(message))
        if len(_UNCONVERGED) > 1:
            return
    elif str(message) in _WARNED:
        return
    _WARNED.add(str(message))
    typer.secho(f"Warning: {printable(message)}", fg="yellow", err=True)


def _count_unconverged() -> None:
    """Report how many batches did not converge, if there was more than one."""
    if len(_UNCONVERGED) > 1:
        words = f"The warning about tolerance came {len(_UNCONVERGED):,} times, once per batch."
        typer.secho(f"Warning: {words}", fg="yellow", err=True)
