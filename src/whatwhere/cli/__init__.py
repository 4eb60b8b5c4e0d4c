"""The command line: one small file per command; torch is imported only when a command runs."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Annotated, NoReturn, TextIO

import typer

from whatwhere.cli import (
    anomaly,
    bench,
    classify,
    data,
    decode,
    demo,
    distill,
    encode,
    explore,
    figures,
    info,
    models,
    restoration,
    train,
)

app = typer.Typer(
    name="whatwhere",
    help="Learn sparse, layered representations of images without labels: what is there, and where.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


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


app.command("anomaly")(anomaly.anomaly)
app.command("demo")(demo.demo)
app.command("denoise")(restoration.denoise)
app.command("distill")(distill.distill)
app.command("encode")(encode.encode)
app.command("decode")(decode.decode)
app.command("classify")(classify.classify)
app.command("explore")(explore.explore)
app.command("figures")(figures.figures)
app.command("info")(info.info)
app.command("inpaint")(restoration.inpaint)
app.command("models")(models.models)
app.command("train")(train.train)
app.add_typer(bench.bench, name="bench")
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the program. An error that a user can fix is printed as one message, without a traceback.

    SIGTERM raises SystemExit, so that temporary files are removed. A command that has been interrupted is not
    interrupted again while it exits.
    """
    from whatwhere.errors import WhatwhereError

    signal.signal(signal.SIGTERM, _terminate)
    warnings.showwarning = _print_warning
    try:
        app()
    except WhatwhereError as error:
        _fail(str(error))
    except OSError as error:  # a disk, a folder or a file that no command foresaw
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    except (KeyboardInterrupt, SystemExit) as stop:
        status = stop.code if isinstance(stop, SystemExit) else INTERRUPTED
        if status in (INTERRUPTED, TERMINATED):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(status) from None


def _fail(message: str) -> NoReturn:
    from whatwhere.errors import printable

    typer.secho("error: " + "\n".join(map(printable, message.split("\n"))), fg="red", err=True)
    raise SystemExit(2) from None


def _terminate(number: int, frame: object) -> NoReturn:
    raise SystemExit(TERMINATED)


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings of this program are for its user: one line. Those of other packages keep their place in the code."""
    from whatwhere.errors import printable

    if category is UserWarning:
        typer.secho(f"warning: {printable(message)}", fg="yellow", err=True)
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))
