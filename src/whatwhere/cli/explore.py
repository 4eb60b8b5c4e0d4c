"""`whatwhere explore`: a page on which the model can be seen and touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.options import Engine, Quiet

if TYPE_CHECKING:
    from whatwhere.data import Images
    from whatwhere.explorer.export import Explorer
    from whatwhere.explorer.server import Content


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
    examples: Annotated[int, typer.Option(min=1, help="How many examples the page carries, at most.")] = 1000,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    engine: Engine = "auto",
    quiet: Quiet = False,
) -> None:
    """Show the model in a browser: draw an image, watch inference explain it, move the explanation with the mouse."""
    from whatwhere.cli.inputs import open_run, source_of
    from whatwhere.cli.stages import Stages
    from whatwhere.explorer.export import Explorer
    from whatwhere.files import write_atomic

    recipe, model = open_run(run, "cpu")
    images = example_images(data or source_of(run))
    name = run.stem if run.is_file() else run.resolve().name
    explorer = Explorer(model, recipe, images, name=name, examples=examples, engine=engine)
    if out is None:
        serve(explorer, port, browser)
        return
    count = len(explorer.images)
    with Stages(quiet=quiet).stage(f"inferring {count:,} examples", count) as advance:
        page = explorer.export(advance)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page.encode("utf-8"))
    typer.echo(f"{out} ({len(page.encode('utf-8')) / 1e6:.1f} MB)")


def example_images(source: str) -> Images:
    """The test images of a data set known by name, else all images of the source."""
    from whatwhere import data
    from whatwhere.data.catalogue import CATALOGUE

    return data.load(source, split="test" if source in CATALOGUE else None)


def serve(explorer: Explorer, port: int, browser: bool) -> None:
    """Show the page on this machine alone until Ctrl-C; the codes of its examples are inferred while one looks."""
    import webbrowser

    from whatwhere.explorer.server import PageServer

    with PageServer(answers(explorer), port) as server:
        typer.echo(f"{server.url}\nCtrl-C ends it.")
        if browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")


def answers(explorer: Explorer) -> Callable[[str], Content | None]:
    """What is served: the page, and the codes of its examples, each part inferred when it is first asked for."""
    from whatwhere.explorer.server import Content

    page, inferring = explorer.page(served=True).encode(), Lock()
    known: dict[str, Content] = {"": Content(page)}
    parts = {f"codes/{part}": part for part in range(explorer.parts)}

    def answer(path: str) -> Content | None:
        if path in parts and path not in known:
            with inferring:  # one part at a time
                known[path] = Content(explorer.codes(parts[path]).encode(), "text/plain; charset=us-ascii")
        return known.get(path)

    return answer
