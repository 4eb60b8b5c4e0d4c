"""`whatwhere label`: a page in the browser on which a person labels pictures."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import whatwhere as ww
from whatwhere.classification.settings import DISTORTIONS, Distortions
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import EXECUTION, ImageInput, read_images, recorded_by
from whatwhere.commands.outputs import Stages, claim
from whatwhere.errors import SpecError, plural, printable, warn
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked
from whatwhere.spec.execution import Execution

if TYPE_CHECKING:
    from whatwhere.html.server import Act, Answer
    from whatwhere.labelling.descriptions import Behind, PlainSettings
    from whatwhere.labelling.page import LabelPage
    from whatwhere.progress import Stage


@dataclass(frozen=True, kw_only=True)
class _LabelViews(Checked):
    """What describes the pictures of a page, besides the features that are learned from them.

    Parameters
    ----------
    features
        with commas: colour, edges, patterns, patches, network, or an ONNX file; the labels decide
        how much each counts. By default, colour and edges. The network (pip install
        whatwhere[network]) helps most where classes are things in photographs
    """

    features: str = ""

    def plain(self) -> "PlainSettings":
        """Return the views that describe the pictures before features are learned."""
        from whatwhere.labelling.descriptions import PlainSettings
        from whatwhere.views import as_view, as_views
        from whatwhere.views.choice import OWN

        usual = PlainSettings()
        own = {view.name: view for view in usual.views}
        names = [name.strip() for name in self.features.split(",") if name.strip() not in ("", OWN)]
        views = as_views([own.get(name) or as_view(name) for name in names])
        return replace(usual, views=tuple(views)) if views else usual


@command(
    DISTORTIONS,
    EXECUTION,
    (ImageInput, "size"),
    (Recipe, "descriptor"),
    _LabelViews,
    flags="size features",
)
def label(
    images: str | None = None,
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

    Parameters
    ----------
    images
        a folder of pictures, or another source; without one, you drop pictures on the page
    run
        a run, a model file or the name of a model; by default the command learns a model from the
        pictures
    out
        the .csv file for your labels
    labels_from
        import labels first: a .csv file with names and classes, or the .json file of Label Studio.
        A warning names labels of unknown pictures
    export
        write the class of every picture instead of opening the page: a table (.csv), tasks for
        Label Studio (.json), or a new folder with a sub-folder for each class. If the folder
        exists, a number follows its name
    links
        with --export FOLDER: link to the pictures instead of copying them
    overwrite
        with --export FILE: replace a file that exists. Tables of labels are never replaced

    Examples
    --------
    $ whatwhere label
    $ whatwhere label pictures/
    $ whatwhere label pictures/ runs/mine --out labels.csv
    $ whatwhere label pictures/ --features colour,edges,network
    $ whatwhere label pictures/ --export sorted/ --links
    """
    stages = Stages()
    if images is None:
        if export is not None or labels_from is not None:
            raise SpecError("--export and --labels-from need pictures. Give a folder of pictures.")
        _label_dropped(stages, out, settings)
        return
    if export is not None and export.suffix.lower() in (".csv", ".json"):
        own = out.with_name("predictions.csv")
        claim([export], run, images, labels_from, out, own, overwrite=overwrite)
    opening = _Opening(stages, run, out, labels_from, settings)
    source = read_to_label(images, run, out, settings.of(ImageInput).size)
    if export is not None:
        session = opening.session(source, stages.stage, first=None)
        session.use_best(opening.behind(source).learned(stages.stage))
        written = session.export(export, links=links, overwrite=overwrite)
        typer.echo(f"Wrote {printable(written)}: the classes of {plural(len(source), 'picture')}")
        typer.echo(session.error_words())
        return
    shown = opening.page(source)
    _serve(stages, shown.answer, shown.act, f"Your labels are in {out}.", lambda: shown)


def _label_dropped(stages: Stages, out: Path, settings: Settings) -> None:
    """Open a page on which pictures are dropped first: they are kept in a new folder."""
    from whatwhere.labelling.drop import DropZone

    folder = free_folder(Path("dropped"))
    table = folder.with_suffix(".csv") if out == Path("labels.csv") else out
    opening = _Opening(stages, None, table, None, settings)

    def open_page(folder: Path) -> "LabelPage":
        size = settings.of(ImageInput).size
        return opening.page(read_to_label(str(folder), None, table, size))

    zone = DropZone(folder, open_page)
    words = f"Drop pictures on the page; {folder} keeps them, and {table} your labels."
    again = f"`whatwhere label {folder} --out {table}` continues."
    _serve(stages, zone.answer, zone.act, words, lambda: zone.page, again)


def free_folder(folder: Path) -> Path:
    """Return a name for a new folder: this one, or this one with a number behind it."""
    number = 1
    tried = folder
    while os.path.lexists(tried) or os.path.lexists(tried.with_suffix(".csv")):
        number += 1
        tried = folder.with_name(f"{folder.name}-{number}")
    return tried


def _serve(
    stages: Stages,
    answer: "Answer",
    act: "Act",
    words: str,
    page: Callable[[], "LabelPage | None"],
    again: str = "The same command continues.",
) -> None:
    """Serve the page until Ctrl-C, and say then where the labels are."""
    from whatwhere.html.server import PageServer

    try:
        with PageServer(answer, act=act) as server:
            server.show(f"Press Ctrl-C to stop. {words}")
    finally:
        stages.console.show_cursor()  # a progress bar that Ctrl-C interrupted has hidden it
        shown = page()
        if shown is not None and shown.session is not None and shown.session.said:
            count = len(shown.session.said)
            verb = "is" if count == 1 else "are"
            file = printable(shown.session.file or "")
            typer.echo(f"{plural(count, 'label')} {verb} saved in {file}. {again}")


@dataclass(frozen=True)
class _Opening:
    """Opens sessions and pages with the options of one command.

    Parameters
    ----------
    stages
        shows progress on the terminal
    run
        a run, a model file or the name of a model; None learns one
    out
        the table of labels
    labels_from
        labels to import first
    settings
        the other options
    """

    stages: Stages
    run: str | None
    out: Path
    labels_from: Path | None
    settings: Settings

    def session(
        self, source: "ww.data.Images", stage: "Stage", first: int | None
    ) -> "ww.Labelling":
        """Begin a session; `first` pictures are described now, None for all."""
        views = self.settings.of(_LabelViews).plain().views
        session = ww.Labelling(source, features=views, labels=self.out, first=first, stage=stage)
        if self.labels_from is not None and not session.import_labels(self.labels_from):
            # a warning counts them if some are not for these pictures
            labels = plural(len(session.labels.history[-1]), "label")
            self.stages.note(f"Imported {labels}.")
        return session

    def behind(self, source: "ww.data.Images") -> "Behind":
        """Return what describes the pictures better, which takes longer."""
        # imported after the pictures are read, so that an error in them is reported sooner
        from whatwhere.labelling.descriptions import Behind

        how = self.settings.of(Distortions)
        options = self.settings.of(Execution)
        change = self.settings.override
        plain = self.settings.of(_LabelViews).plain().for_pictures(source)
        return Behind(source, self.run, how, options, self.out, plain, change=change)

    def page(self, source: "ww.data.Images") -> "LabelPage":
        """Return the page of a session on pictures, which begins in a thread."""
        from whatwhere.labelling.page import LabelPage

        behind = self.behind(source)
        classifier = self.out.with_suffix(".classifier.safetensors")
        return LabelPage(
            lambda stage: self.session(source, stage, behind.plain.first),
            source.name,
            classifier,
            self.stages.stage,
            behind,
        )


def read_to_label(images: str, run: str | None, out: Path, size: int | None) -> "ww.data.Images":
    """Return the images of a labelling session, in the size of its model: `run`'s, or the one
    that an earlier session learned."""
    learned = out.with_suffix(".run")
    side = recorded_by(learned).side
    if run is None and size is not None and side not in (None, size):
        raise SpecError(
            f"{printable(learned)} learned from squares of {side} pixels. For --size {size}, choose"
            " another table with --out, so that the command learns a new model."
        )
    of_model = Path(run) if run else learned
    with words_of_label():
        if ww.data.is_folder(images):  # a page opens at once, however many pictures there are
            return ww.data.open_folder(images, size, recorded_by(of_model))
        return read_images(of_model, images, size=size)


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
