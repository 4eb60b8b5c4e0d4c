"""`whatwhere explore`: a page on which the model can be seen and touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.options import Engine, Quiet

if TYPE_CHECKING:
    from whatwhere.data import Images


def explore(
    run: Annotated[
        Path,
        typer.Argument(metavar="[RUN]", help="A run folder, a model file (.safetensors), or a model known by name."),
    ] = Path("mnist"),
    out: Annotated[Path | None, typer.Option(help="Write the page to this HTML file instead of showing it.")] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="IMAGES", help="The examples: a data set, a file or a folder. Default: the run's own."),
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="How many examples the page carries, at most.")] = 2000,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    engine: Engine = "auto",
    quiet: Quiet = False,
) -> None:
    """Show the model in a browser: draw an image, watch inference explain it, move the explanation with the mouse."""
    from whatwhere.cli.inputs import open_run, source_of
    from whatwhere.cli.stages import Stages
    from whatwhere.explorer.export import choose_examples, export
    from whatwhere.files import write_atomic

    recipe, model = open_run(run, "cpu")
    images = example_images(data or source_of(run))
    name = run.stem if run.is_file() else run.resolve().name
    count = len(choose_examples(images, examples))
    with Stages(quiet=quiet).stage(f"inferring {count:,} examples", count) as advance:
        page = export(model, recipe, images, name=name, examples=examples, engine=engine, progress=advance)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, page.encode("utf-8"))
        typer.echo(f"{out} ({len(page.encode('utf-8')) / 1e6:.1f} MB)")
        return
    serve(page, port, browser)


def example_images(source: str) -> Images:
    """The test images of a data set known by name, else all images of the source."""
    from whatwhere import data
    from whatwhere.data.catalogue import CATALOGUE

    return data.load(source, split="test" if source in CATALOGUE else None)


def serve(page: str, port: int, browser: bool) -> None:
    """Show the page on this machine alone until Ctrl-C."""
    import webbrowser

    from whatwhere.explorer.server import PageServer

    with PageServer(page, port) as server:
        typer.echo(f"{server.url}\nCtrl-C ends it.")
        if browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")
