"""`whatwhere explore`: a page that explains images with a model."""

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import typer

from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import (
    notes_of,
    open_run,
    read_examples,
    source_of,
)
from whatwhere.commands.old_forms import Reordered
from whatwhere.commands.outputs import Stages, claim, write
from whatwhere.spec.execution import Execution

if TYPE_CHECKING:
    from whatwhere.explorer.page import Explorer
    from whatwhere.html.server import Answer, Content


@command((Execution, "engine"), old=(Reordered("run images", "run --images"),))
def explore(
    run: Path = Path("mnist"),
    *,
    images: str | None = None,
    out: Path | None = None,
    examples: int = 1000,
    port: int = 0,
    browser: bool = True,
    settings: Settings,
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    """Open a page in the browser where you draw an image, watch inference explain it, and edit the
    explanation with the mouse.

    Parameters
    ----------
    images
        example images, as for `encode`; default: the run's
    out
        write the page to this HTML file instead of opening it
    examples
        the largest number of example images in the page
    port
        port to serve the page on; 0 chooses a free one
    browser
        open the page in a browser

    Examples
    --------
    $ whatwhere explore mnist
    $ whatwhere explore runs/mine --images pictures/ --out explorer.html
    """
    from whatwhere.explorer.page import Explorer
    from whatwhere.explorer.settings import ExplorerSettings
    from whatwhere.html.server import PageServer
    from whatwhere.inference.target import in_model_units

    recipe, model = open_run(run, "cpu")
    source = images or source_of(run)
    name = run.stem if run.is_file() else run.resolve().name
    shown = in_model_units(model.spec, read_examples(run, source))
    engine = settings.of(Execution).engine
    explorer = Explorer(
        model,
        recipe,
        shown,
        name=name,
        engine=engine,
        learned_from=learned_from(run),
        settings=ExplorerSettings(examples=examples),
    )
    if out is None:
        with PageServer(answers(explorer), port=port) as server:
            server.show(browser=browser)
        return
    claim([out], run, source, overwrite=overwrite)
    count = len(explorer.images)
    with Stages(quiet).stage(f"inferring {count:,} examples", count) as advance:
        page = explorer.export(advance).encode()
    write(out, page)
    typer.echo(f"{out} ({len(page) / 1e6:.1f} MB)")


def learned_from(run: Path) -> str:
    """Return the images that a model learned from, in words: those that its run recorded, or those
    of the card of a model that is known by name; '' for a model file."""
    from whatwhere.data import models

    recorded = notes_of(run).get("source")
    if recorded is not None:
        return os.path.basename(str(recorded))
    if models.resolve(run) == run:
        return ""
    return str(models.find(str(run)).facts.get("data", "")).partition(" (")[0]


def answers(explorer: "Explorer") -> "Answer":
    """Return what the server answers: the page, and the codes of its examples, each part inferred
    on the first request for it."""
    from whatwhere.html.server import Content

    page = explorer.page(served=True).encode()
    inferring = Lock()
    known: dict[str, Content] = {"": Content(page)}
    parts = {f"codes/{part}": part for part in range(explorer.parts)}

    def answer(path: str) -> "Content | None":
        if path in parts and path not in known:
            with inferring:  # one part at a time
                known[path] = Content(
                    explorer.codes(parts[path]).encode(), "text/plain; charset=us-ascii"
                )
        return known.get(path)

    return answer
