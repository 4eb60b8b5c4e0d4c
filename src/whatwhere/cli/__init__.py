"""The command line: one small file a command, torch imported only once a command runs."""

import typer

from whatwhere.cli import bench, classify, data, demo, encode, figures, info, reproduce, train

app = typer.Typer(
    name="whatwhere",
    help="Learn sparse, layered representations of images without labels: what is there, and where.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def _program() -> None:
    """With a callback the program keeps its commands' names even while there is one alone."""


app.command("demo")(demo.demo)
app.command("encode")(encode.encode)
app.command("classify")(classify.classify)
app.command("figures")(figures.figures)
app.command("info")(info.info)
app.command("reproduce")(reproduce.reproduce)
app.command("train")(train.train)
app.add_typer(bench.bench, name="bench")
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the program; an error a person can mend is shown as one message, without a traceback."""
    from whatwhere.errors import WhatwhereError

    try:
        app()
    except WhatwhereError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise SystemExit(2) from None
