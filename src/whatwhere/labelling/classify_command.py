"""`whatwhere classify`: a class for every picture, from a few labels or with a saved classifier."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import typer

import whatwhere as ww
from whatwhere.classification.settings import DISTORTIONS, Distortions
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import (
    EXECUTION,
    SHARD,
    open_run,
    open_shard,
    read_images,
    with_preset,
)
from whatwhere.commands.old_forms import model_first
from whatwhere.commands.outputs import Report, Stages, claim, write
from whatwhere.errors import SpecError, plural, printable
from whatwhere.errors import command as command_line
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked
from whatwhere.spec.execution import Execution, Shard


@dataclass(frozen=True, kw_only=True)
class _LabelOptions(Checked):
    """Choices of `classify` with a table of labels.

    Parameters
    ----------
    balanced
        assume that all classes have about the same number of pictures
    views
        what describes pictures, with commas: own (the features of the model), colour, edges,
        patterns, patches, network, or an ONNX file; the labels decide how much each counts. By
        default, all that are installed, but own alone if the model is given by name. The network
        (pip install whatwhere[network]) helps most where classes are things in photographs
    """

    balanced: bool = False
    views: str = ""

    def features(self, run: "ww.TrainedRun") -> list[str]:
        """Return the views to describe pictures by."""
        from whatwhere.views import OWN, usual_views

        if self.views:
            return [name.strip() for name in self.views.split(",")]
        return [OWN, *(view.name for view in usual_views())] if run.folder else [OWN]


@command(
    _LabelOptions,
    DISTORTIONS,
    EXECUTION,
    SHARD,
    (Recipe, "inference descriptor"),
    flags="device shard views",
    old=(model_first(model="model"),),
)
def classify(
    images: str,
    model: Path,
    *,
    out: Path,
    labels: Path | None = None,
    preset: str = "recipe",
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Classify pictures from a few labels, or with a saved classifier.

    With a table of a few labels (--labels), every picture gets a class: labels spread between
    neighbours, in a metric that discounts small distortions. The command writes three files to the
    folder --out: `predictions.csv`; `index.html`, a page with the least sure pictures and pictures
    of every class; and `classifier.safetensors`, which classifies new pictures.

    Without labels, MODEL is such a classifier, or one that `whatwhere label` saved, and the command
    writes `predictions.csv`.

    Parameters
    ----------
    images
        as for `encode`
    model
        a run or a model, as for `encode`, with --labels; a saved classifier without
    labels
        labels of a few pictures: a .csv file with the name and the class of one picture per line (a
        name may leave out the folder if no other picture has the same name)
    out
        folder for the results. With --shard, each part writes to a sub-folder
    overwrite
        also replace files that whatwhere did not write, or that have changed since. The command
        replaces results of whatwhere in this folder without asking

    Examples
    --------
    $ whatwhere classify pictures/ runs/mine --labels few.csv --out sorted
    $ whatwhere classify new_pictures/ sorted/classifier.safetensors --out new
    """
    task = _Task(images, model, out, overwrite, preset, settings, Stages(quiet))
    if labels is not None:
        report = _classify_from_labels(task, labels)
    else:
        report = _classify_with_classifier(task, open_shard(settings, out, quiet=quiet))
    typer.echo(report.text(json_))


@dataclass(frozen=True)
class _Task:
    """What the command was given: the pictures, what classifies them, and the folder of results."""

    images: str
    model: Path
    out: Path
    overwrite: bool
    preset: str
    settings: Settings
    stages: Stages

    def svm(self, *options: str | Path) -> str:
        """Write the command that measures how well the model separates the classes of pictures that
        are all labelled."""
        return command_line("whatwhere", "svm", self.images, self.model, *options)


_RESULTS = ("predictions.csv", "index.html", "classifier.safetensors")


def _classify_from_labels(task: _Task, labels: Path) -> Report:
    """Give all pictures a class from a table with the classes of a few."""
    from whatwhere.classification.picture_classifier import is_classifier
    from whatwhere.data.pictures import row_names
    from whatwhere.labelling.classes_page import classes_page
    from whatwhere.labelling.label_tables import (
        labels_of_pictures,
        read_labels,
        write_predictions,
    )

    if labels.suffix.lower() != ".csv":
        raise SpecError(
            f"Got --labels {printable(labels)}; expected a .csv file with labels of a few pictures."
            f" To measure an SVM on pictures that are all labelled: {task.svm('--labels', labels)}"
        )
    if is_classifier(task.model):
        raise SpecError(
            f"{printable(task.model)} is a classifier, which needs no labels. Leave out --labels."
        )
    settings = task.settings
    if settings.given("shard"):
        raise SpecError(
            "--shard needs a saved classifier, because this command learns from all pictures at"
            " once. Run it without --shard, or classify new pictures with the saved classifier."
        )
    options = settings.of(Execution)
    recipe, model = with_preset(
        *open_run(task.model, options.device, options.engine), task.preset, settings
    )
    folder = task.model if task.model.is_dir() else None
    run = ww.TrainedRun(task.model.name, recipe, model, folder=folder)
    out = task.out
    predictions, page, classifier = outputs = [out / name for name in _RESULTS]
    claim(outputs, task.model, task.images, labels, folder=out, overwrite=task.overwrite)
    images = read_images(task.model, task.images)
    # before the long work, so that a mistake in the table is reported at once
    given = labels_of_pictures(labels, read_labels(labels), row_names(images))
    chosen = settings.of(_LabelOptions)
    session = ww.Labelling(
        images,
        run=run,
        features=chosen.features(run),
        invariant_to=settings.of(Distortions),
        class_prior="uniform" if chosen.balanced else None,
        options=options,
        stage=task.stages.stage,
    )
    session.label(given)
    write_predictions(
        predictions, session.names, session.classes, session.probabilities, session.labelled
    )
    more = shlex.join(
        ["whatwhere", "label", task.images, str(task.model), "--labels-from", str(labels)]
    )
    write(page, classes_page(session, images, label_command=more).encode(), out)
    write(classifier, session.classifier().to_bytes(), out)
    return _report(session, out, page, classifier)


def _report(session: "ww.Labelling", out: Path, page: Path, classifier: Path) -> Report:
    """Report how many pictures got classes, which to label next, and the estimated error."""
    assert session.describe is not None
    unsure = [session.names[row] for row in session.suggested_rows(5)]
    count = len(session.names)
    known = len(session.labelled)
    words = (
        f"{printable(out)}: {plural(count, 'image')},"
        f" {plural(len(session.classes), 'class', 'classes')} from {plural(known, 'label')}"
    )
    facts = {
        "folder": str(out),
        "images": count,
        "labels": known,
        "worth_labelling": unsure,
        "where": session.describe.why,
        "views": session.views,
        "estimated_error": session.error(),
        "classifier": str(classifier),
    }
    sort_new = command_line("whatwhere", "classify", "NEW/", classifier, "--out", "NEW_OUT")
    lines = [
        f"{words}; worth labelling next: {', '.join(unsure)}",
        session.describe.why,
        session.views,
        f"{session.error_words()} {printable(page)} begins with the least sure ones.",
        f"Sort new pictures with: {sort_new}",
    ]
    return Report(facts, "\n".join(lines))


def _classify_with_classifier(task: _Task, shard: Shard) -> Report:
    """Give pictures the classes of a saved classifier."""
    from whatwhere.classification.picture_classifier import is_classifier
    from whatwhere.data import is_folder
    from whatwhere.data.images import AllPictures
    from whatwhere.data.parts import PartRecord, begin_part, end_part
    from whatwhere.data.pictures import picture_names
    from whatwhere.files import file_checksum
    from whatwhere.labelling.label_tables import write_predictions

    if not is_classifier(task.model):
        raise SpecError(
            f"{printable(task.model)} is not a classifier. To classify with a model, give labels of"
            " a few pictures: --labels FEW.csv. To measure how well the model separates the classes"
            f" of pictures that are all labelled: {task.svm()}"
        )
    classifier = ww.load_classifier(task.model)
    if classifier.describe is None:
        raise SpecError(
            f"{printable(task.model)} classifies rows of numbers, not pictures. Use it in Python:"
            " ww.load_classifier(…).predict(rows)."
        )
    images = task.images
    out = shard.part_of(task.out)
    table = out / "predictions.csv"
    claim([table], task.model, images, folder=out, overwrite=task.overwrite)
    if is_folder(images):
        pictures = ww.data.load(images, size=classifier.describe.shape[1], shard=shard)
        all_pictures = pictures.all_pictures
        names = picture_names(pictures.pixels) or []
    else:
        pictures = ww.data.load(images)
        all_pictures = AllPictures.of(len(pictures), [Path(images).name])
        rows = list(shard.rows_of_pictures(len(pictures)))
        names = picture_names(pictures.pixels) or [str(row) for row in range(len(pictures))]
        names = [names[row] for row in rows]
        pictures = pictures.subset(rows)
    record = PartRecord(file_checksum(task.model), "", all_pictures)
    begin_part(out, shard, record, overwrite=task.overwrite)
    with task.stages.stage(f"classifying {pictures.name}", len(pictures)) as advance:
        shares = classifier.predict_proba(pictures, advance)
    write_predictions(table, names, classifier.classes, shares, ())
    end_part(out, shard)
    counts = {
        name: int((shares.argmax(1) == number).sum())
        for number, name in enumerate(classifier.classes)
    }
    words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return Report({"folder": str(out), "classes": counts}, f"{printable(out)}: {words}")
