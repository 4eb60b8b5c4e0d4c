"""`whatwhere label`: a page in the browser on which a person labels pictures."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

import whatwhere as ww
from whatwhere.classification.settings import DISTORTIONS, Distortions
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import EXECUTION, ImageInput, read_images, recorded_by
from whatwhere.commands.outputs import Stages, claim
from whatwhere.errors import SpecError, plural, printable, warn
from whatwhere.spec import Recipe
from whatwhere.spec.execution import Execution


@command(DISTORTIONS, EXECUTION, (ImageInput, "size"), (Recipe, "descriptor"), flags="size")
def label(
    images: str,
    run: str | None = None,
    *,
    out: Path = Path("labels.csv"),
    labels_from: Path | None = None,
    export: Path | None = None,
    links: bool = False,
    overwrite: bool = False,
    settings: Settings,
) -> None:
    """Label a few pictures in the browser, and classify all others.

    The file --out holds your labels, and `predictions.csv` next to it holds the class of every
    picture. The command updates both after every label, and continues from them the next time.
    Pictures without a label get a class as soon as two classes have labels. At first, colours and
    edges describe the pictures; meanwhile the command learns a model, and uses it where it explains
    your labels better. It stores the model, and the classifier that you save on the page, in the
    same folder.

    run          a run, a model file or the name of a model; by default the command learns a model
                 from the pictures
    out          the .csv file for your labels
    labels_from  import labels first: a .csv file with names and classes, or the .json file of Label
                 Studio. A warning names labels of unknown pictures
    export       write the class of every picture instead of opening the page: a table (.csv), tasks
                 for Label Studio (.json), or a new folder with a sub-folder for each class. If
                 the folder exists, a number follows its name
    links        with --export FOLDER: link to the pictures instead of copying them
    overwrite    with --export FILE: replace a file that exists. Tables of labels are never replaced

    $ whatwhere label pictures/
    $ whatwhere label pictures/ runs/mine --out labels.csv
    $ whatwhere label pictures/ --export sorted/ --links
    """
    stages = Stages()
    how = settings.of(Distortions)
    options = settings.of(Execution)
    if export is not None and export.suffix.lower() in (".csv", ".json"):
        own = out.with_name("predictions.csv")
        claim([export], run, images, labels_from, out, own, overwrite=overwrite)
    source = read_to_label(images, run, out, settings.of(ImageInput).size)
    # imported after the pictures are read, so that an error in them is reported sooner
    from whatwhere.html.server import PageServer
    from whatwhere.labelling.descriptions import Behind, PlainSettings
    from whatwhere.labelling.page import LabelPage
    from whatwhere.progress import Stage

    plain = PlainSettings()
    behind = Behind(source, run, how, options, out, plain, change=settings.override)

    def make(stage: Stage, first: int | None = plain.first) -> ww.Labelling:
        session = ww.Labelling(source, features=plain.views, labels=out, first=first, stage=stage)
        if labels_from is not None and not session.import_labels(labels_from):
            # a warning counts them if some are not for these pictures
            stages.note(f"Imported {plural(len(session.labels.history[-1]), 'label')}.")
        return session

    if export is not None:
        session = make(stages.stage, None)
        session.use_best(behind.learned(stages.stage))
        written = session.export(export, links=links, overwrite=overwrite)
        typer.echo(f"Wrote {printable(written)}: the classes of {plural(len(source), 'picture')}")
        typer.echo(session.error_words())
        return
    classifier = out.with_suffix(".classifier.safetensors")
    shown = LabelPage(make, source.name, classifier, stages.stage, behind)
    try:
        with PageServer(shown.answer, act=shown.act) as server:
            server.show(f"Press Ctrl-C to stop. Your labels are in {out}.")
    finally:
        stages.console.show_cursor()  # a progress bar that Ctrl-C interrupted has hidden it
        if shown.session is not None and shown.session.said:
            count = plural(len(shown.session.said), "label")
            typer.echo(f"{count} in {printable(out)}. Run the same command to continue.")


def read_to_label(images: str, run: str | None, out: Path, size: int | None) -> "ww.data.Images":
    """The images of a labelling session, in the size of its model: that of `run`, or the one that
    an earlier session learned."""
    learned = out.with_suffix(".run")
    side = recorded_by(learned).side
    if run is None and size is not None and side not in (None, size):
        raise SpecError(
            f"{printable(learned)} learned from squares of {side} pixels. For --size {size}, choose"
            " another table with --out, so that the command learns a new model."
        )
    with words_of_label():
        return read_images(Path(run) if run else learned, images, size=size)


@contextmanager
def words_of_label() -> Iterator[None]:
    """Around code whose warnings name a remedy in Python: they name the options of `label`."""
    from whatwhere.data.mixed import USUAL_SIDE, PicturesBecomeSquares

    run_again = f"Stop (Ctrl-C) and run again with --size {USUAL_SIDE} and another --out"
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for warning in caught:
            given = warning.message
            if isinstance(given, PicturesBecomeSquares):
                warn(given.words(run_again))
            else:
                warn(given, warning.category)
