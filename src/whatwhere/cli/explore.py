"""`whatwhere explore` and `label`: pages on which a model is seen and touched, and pictures are
labelled."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import typer

import whatwhere as ww
from whatwhere.cli.command import Settings, command
from whatwhere.cli.inputs import (
    DISTORTIONS,
    EXECUTION,
    open_run,
    read_examples,
    read_images,
    source_of,
)
from whatwhere.cli.outputs import Stages, claim, write
from whatwhere.errors import plural, printable
from whatwhere.spec.execution import Execution
from whatwhere.spec.tasks import Distortions


@command((Execution, "engine"))
def explore(
    run: Path = Path("mnist"),
    images: str | None = None,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    examples: int = 1000,
    port: int = 0,
    browser: bool = True,
    settings: Settings,
    quiet: bool = False,
) -> None:
    """Show the model in a browser: draw an image, watch inference explain it, move the explanation
    with the mouse.

    images    the examples, as for `encode`; default: those of the run
    out       write the page to this HTML file instead of showing it
    examples  how many images the page carries, at most
    port      of this machine on which the page is served; 0: a free one
    browser   open the page in a browser
    """
    from whatwhere.inference.target import in_model_units
    from whatwhere.pages.explorer import Explorer
    from whatwhere.pages.server import PageServer

    recipe, model = open_run(run, "cpu")
    source = images or source_of(run)
    name = run.stem if run.is_file() else run.resolve().name
    shown = in_model_units(model.spec, read_examples(run, source))
    engine = settings.of(Execution).engine
    explorer = Explorer(model, recipe, shown, name=name, examples=examples, engine=engine)
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


def answers(explorer: Any) -> Callable[[str], Any]:
    """What is served: the page, and the codes of its examples, each part inferred when it is first
    asked for."""
    from whatwhere.pages.server import Content

    page = explorer.page(served=True).encode()
    inferring = Lock()
    known: dict[str, Content] = {"": Content(page)}
    parts = {f"codes/{part}": part for part in range(explorer.parts)}

    def answer(path: str) -> Any:
        if path in parts and path not in known:
            with inferring:  # one part at a time
                known[path] = Content(
                    explorer.codes(parts[path]).encode(), "text/plain; charset=us-ascii"
                )
        return known.get(path)

    return answer


@command(DISTORTIONS, EXECUTION)
def label(
    images: str,
    run: str | None = None,
    *,
    out: Path = Path("labels.csv"),
    labels_from: Path | None = None,
    export: Path | None = None,
    links: bool = False,
    settings: Settings,
) -> None:
    """Label a few pictures in a browser, and see the others fall into place.

    After every label OUT has all that was said, and `predictions.csv` next to it the class of every
    picture; the page continues from them. A model that was learned first is next to them, too, and
    the classifier that the page saves.

    run          a run, a model file or the name of a model; default: one is learned from the
                 pictures first, in a stream
    out          the table of labels
    labels_from  first take over labels that were made elsewhere: a .csv file with names and
                 classes, or the .json of Label Studio
    export       write the class of every picture instead of showing the page: a table (.csv), tasks
                 for Label Studio (.json), or a new folder with a sub-folder for each class
    links        in such a folder, links to the pictures instead of copies
    """
    from whatwhere.pages.labelling import LabelPage
    from whatwhere.pages.server import PageServer
    from whatwhere.progress import Stage

    how = settings.of(Distortions)
    options = settings.of(Execution)
    source = read_images(Path(run or ""), images)

    def make(stage: Stage) -> ww.Labelling:
        session = ww.Labelling(
            source, run=run, labels=out, invariant_to=how, options=options, stage=stage
        )
        if labels_from is not None:
            session.import_labels(labels_from)
        return session

    if export is not None:
        written = make(Stages(quiet=True).stage).export(export, links=links)
        typer.echo(f"Wrote {printable(written)}: the classes of {plural(len(source), 'picture')}")
        return
    shown = LabelPage(make, source.name, out.with_suffix(".classifier.safetensors"))
    with PageServer(shown.answer, act=shown.act) as server:
        server.show(f"Ctrl-C ends it; everything that was said is in {out}.")
