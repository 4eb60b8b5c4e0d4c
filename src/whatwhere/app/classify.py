"""`whatwhere classify`: classes of all pictures from a few labels, or the error of a linear SVM."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import whatwhere as ww
from whatwhere.classification.settings import DISTORTIONS, Distortions
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import (
    EXECUTION,
    SHARD,
    notes_of,
    open_run,
    open_shard,
    read_examples,
    read_images,
    source_of,
    with_preset,
)
from whatwhere.commands.outputs import Report, Stages, claim, write
from whatwhere.errors import ImageError, SpecError, plural, printable
from whatwhere.errors import command as command_line
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, NotEmpty, Positive
from whatwhere.spec.execution import Execution, Shard

if TYPE_CHECKING:
    from whatwhere.classification.descriptors import Matrix


@dataclass(frozen=True, kw_only=True)
class _ClassifyOptions(Checked):
    """How `classify` classifies and measures.

    C         values of C to choose from, for the SVM
    balanced  with a table of labels: assume that all classes have about the same number of pictures
    views     with a table of labels: what describes pictures: own (the features of RUN), colour,
              edges, network, or an ONNX file; the labels decide how much each counts. By default,
              all that are installed, but own alone if RUN is a model by name. The network
              (pip install whatwhere[network]) helps most where classes are things in photographs
    """

    C: Annotated[tuple[Positive, ...], NotEmpty()] = (0.3, 3.0, 30.0)
    balanced: bool = False
    views: tuple[str, ...] = ()

    def features(self, run: "ww.TrainedRun") -> list[str]:
        """Return the views to describe pictures by."""
        from whatwhere.views import OWN, usual_views

        if self.views:
            return list(self.views)
        return [OWN, *(view.name for view in usual_views())] if run.folder else [OWN]


@command(
    _ClassifyOptions,
    DISTORTIONS,
    EXECUTION,
    SHARD,
    (Recipe, "inference descriptor"),
    flags="device shard views",
)
def classify(
    run: Path,
    images: str | None = None,
    *,
    labels: Path | None = None,
    test: str | None = None,
    out: Path | None = None,
    preset: str = "recipe",
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Classify all images with a few labels or with a saved classifier, or measure a linear SVM.

    With a table of a few labels (--labels, a .csv file), every image gets a class: labels spread
    between neighbours, in a metric that discounts small distortions. The command writes three files
    to the folder --out: `predictions.csv`; `index.html`, a page with the least sure pictures and
    pictures of every class; and `classifier.safetensors`, which classifies new images.

    If RUN is such a classifier, or one that `whatwhere label` saved, the command assigns a class to
    new images and writes `predictions.csv` to --out.

    Otherwise the command measures a linear SVM: it chooses C on a sixth of the training images,
    fits the SVM to all of them, and tests it once.

    images  as for `encode`; default: the images that the run was trained on
    labels  labels of a few images: a .csv file with the name and the class of one picture per line
            (a name may leave out the folder if no other picture has the same name); or labels of
            all images: an IDX or .npy file
    test    test images with labels: a data set, a folder with a sub-folder for each class, or an
            .npz file; default: the test images of a named data set, or a sixth of the images, held
            out
    out     folder for the results, with a table of labels or a classifier. With --shard, each part
            writes to a sub-folder
    overwrite  also replace files that whatwhere did not write, or that have changed since. The
               command replaces results of whatwhere in this folder without asking

    $ whatwhere classify runs/mine pictures/ --labels few.csv --out sorted
    $ whatwhere classify sorted/classifier.safetensors new_pictures/ --out new
    $ whatwhere classify mnist mnist
    """
    from whatwhere.classification.picture_classifier import is_classifier

    if run.is_file() and is_classifier(run):
        shard = open_shard(settings, out, quiet=quiet)
        report = classify_new(run, images, out, overwrite, Stages(quiet), shard)
        typer.echo(report.text(json_))
        return
    if settings.given("shard"):
        raise SpecError(
            "--shard needs a saved classifier, because this command learns from all pictures at"
            " once. Run it without --shard, or classify new pictures with the saved classifier."
        )
    execution = settings.of(Execution)
    stages = Stages(quiet)
    recipe, model = with_preset(
        *open_run(run, execution.device, execution.engine), preset, settings
    )
    source = images or source_of(run)
    trained = ww.TrainedRun(run.name, recipe, model, folder=run if run.is_dir() else None)
    if labels is not None and labels.suffix.lower() == ".csv":
        if out is None:
            raise SpecError(
                "A table of labels needs --out. Give the folder to write the classes to."
            )
        claim(
            [out / name for name in LABELLED],
            run,
            source,
            labels,
            folder=out,
            overwrite=overwrite,
        )
        report = _label_all(trained, read_images(run, source), labels, out, settings, stages)
        typer.echo(report.text(json_))
        return
    if out is not None:
        raise SpecError("--out needs a table of labels. Give one with --labels, a .csv file.")
    training, tested = _read_sets(run, source, labels, test)
    report = _measure_svm(trained, training, tested, settings, stages)
    report = replace(report, facts={"run": str(run), **report.facts})
    typer.echo(report.text(json_))


def _measure_svm(
    run: "ww.TrainedRun",
    training: "ww.data.Images",
    tested: "ww.data.Images",
    settings: Settings,
    stages: Stages,
) -> Report:
    """Choose C on a sixth of the training images, fit the SVM to all of them, test it once."""
    from whatwhere.classification import protocol
    from whatwhere.classification.anywhere import describe_where
    from whatwhere.classification.where import choose_where, with_choice

    engine = settings.of(Execution).engine
    options = settings.of(_ClassifyOptions)
    choice = choose_where(run.model, training, run.recipe, engine)
    recipe = with_choice(run.recipe, choice)

    def describe(images: "ww.data.Images", name: str) -> "Matrix":
        with stages.stage(f"describing {len(images):,} {name} images", len(images)) as advance:
            return describe_where(run.model, images, recipe, engine=engine, progress=advance)

    x = describe(training, "training")
    x_test = describe(tested, "test")
    y = cast(Any, training.labels)
    y_test = cast(Any, tested.labels)
    device = run.model.device
    with stages.stage("choosing C on validation images", len(options.C)) as advance:
        best, trials = protocol.choose(x, y, grid=options.C, device=device, progress=advance)
    with stages.stage("testing", 1):
        score = protocol.evaluate(x, y, x_test, y_test, best.C, start=best.svm, device=device)
    facts = {
        "training": training.name,
        "test": tested.name,
        "dimensions": x.shape[1],
        "where": choice.line,
        "validation": [{"C": trial.C, "error": trial.error} for trial in trials],
        **asdict(score),
    }
    sizes = (
        f"{training.name} ({len(training):,} images), tested on {tested.name} ({len(tested):,}"
        " images)"
    )
    return Report(facts, "\n".join([sizes, *_result_lines(score, training.classes), choice.line]))


LABELLED = ("predictions.csv", "index.html", "classifier.safetensors")


def _label_all(
    run: "ww.TrainedRun",
    images: "ww.data.Images",
    labels: Path,
    out: Path,
    settings: Settings,
    stages: Stages,
) -> Report:
    """Give all images a class."""
    from whatwhere.data.pictures import row_names
    from whatwhere.labelling.classes_page import classes_page
    from whatwhere.labelling.label_tables import (
        labels_of_pictures,
        read_labels,
        write_predictions,
    )

    # before the long work, so that a mistake in the table is reported at once
    given = labels_of_pictures(labels, read_labels(labels), row_names(images))
    options = settings.of(Execution)
    distortions = settings.of(Distortions)
    session = ww.Labelling(
        images,
        run=run,
        features=settings.of(_ClassifyOptions).features(run),
        invariant_to=distortions,
        class_prior="uniform" if settings.of(_ClassifyOptions).balanced else None,
        options=options,
        stage=stages.stage,
    )
    session.label(given)
    predictions, page, classifier = (out / name for name in LABELLED)
    write_predictions(
        predictions, session.names, session.classes, session.probabilities, session.labelled
    )
    write(page, classes_page(session, images).encode(), out)
    write(classifier, session.classifier().to_bytes(), out)
    unsure = [session.names[row] for row in session.suggested_rows(5)]
    count = len(session.names)
    known = len(session.labelled)
    words = (
        f"{printable(out)}: {plural(count, 'image')},"
        f" {plural(len(session.classes), 'class', 'classes')} from {plural(known, 'label')}"
    )
    assert session.describe is not None
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
    sort_new = command_line("whatwhere", "classify", classifier, "NEW/", "--out", "NEW_OUT")
    lines = [
        f"{words}; worth labelling next: {', '.join(unsure)}",
        session.describe.why,
        session.views,
        f"{session.error_words()} {printable(page)} begins with the least sure ones.",
        f"Sort new pictures with: {sort_new}",
    ]
    return Report(facts, "\n".join(lines))


def classify_new(
    file: Path,
    images: str | None,
    out: Path | None,
    overwrite: bool,
    stages: Stages,
    shard: Shard,
) -> Report:
    """Give new images the classes of a saved classifier."""
    from whatwhere.data import is_folder
    from whatwhere.data.images import AllPictures
    from whatwhere.data.parts import PartRecord, begin_part, end_part
    from whatwhere.data.pictures import picture_names
    from whatwhere.files import file_checksum
    from whatwhere.labelling.label_tables import write_predictions

    classifier = ww.load_classifier(file)
    if images is None or out is None or classifier.describe is None:
        raise SpecError(
            f"{printable(file)} is a classifier. Also give the pictures to classify, and --out"
            " with a folder for the result."
        )
    out = shard.part_of(out)
    table = out / "predictions.csv"
    claim([table], file, images, folder=out, overwrite=overwrite)
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
    record = PartRecord(file_checksum(file), "", all_pictures)
    begin_part(out, shard, record, overwrite=overwrite)
    with stages.stage(f"classifying {pictures.name}", len(pictures)) as advance:
        shares = classifier.predict_proba(pictures, advance)
    write_predictions(table, names, classifier.classes, shares, ())
    end_part(out, shard)
    counts = {
        name: int((shares.argmax(1) == number).sum())
        for number, name in enumerate(classifier.classes)
    }
    words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return Report({"folder": str(out), "classes": counts}, f"{printable(out)}: {words}")


def _read_sets(
    run: Path, images: str, labels: Path | None, test: str | None
) -> "tuple[ww.data.Images, ww.data.Images]":
    """Labelled training and test images. Without test images, a sixth of each class of the training
    images is held out."""
    import numpy as np

    from whatwhere.classification.linear_svm import check_labels
    from whatwhere.classification.protocol import folds
    from whatwhere.data.catalogue import CATALOGUE

    training = read_images(run, images, labels)
    notes = notes_of(run)
    limit = notes.get("limit")
    if limit is not None and images == notes.get("source") and limit < len(training):
        training = training.subset(np.arange(limit))  # the images that the run was trained on
    if test is None and images in CATALOGUE:
        test = images
    tested = training if test is None else read_examples(run, test)
    for part in (training, tested):
        if part.labels is None:
            raise ImageError(
                f"{part.name} has no labels. To classify all pictures from a few labels, give"
                " --out and a .csv file with --labels: on each line, the name of a picture and"
                " its class. To measure an SVM, label all of them: use a folder with one"
                " sub-folder per class, an .npz file of images and labels, or --labels with an"
                " IDX or .npy file."
            )
    if test is not None:
        return training, tested
    y = cast(Any, training.labels)
    check_labels(training.pixels, y)
    held_out = folds(y, seed=1) == 0
    rest = training.subset(np.flatnonzero(~held_out))
    rows = np.flatnonzero(held_out)
    return rest, training.subset(rows, f"a held-out sixth of {training.name}")


def _result_lines(score: Any, classes: tuple[str, ...] | None) -> list[str]:
    """The result in words, and the confusion matrix."""
    low, high = score.interval
    names = [str(c) if classes is None or c >= len(classes) else classes[c] for c in score.classes]
    width = max(len(word) for word in (*names, str(score.images))) + 2
    rows = [
        [name, *(str(number or "·") for number in row)]
        for name, row in zip(names, score.confusion, strict=True)
    ]
    return [
        (
            f"error {score.error:.2%} ({score.errors} of {score.images:,}; 95 % interval {low:.2%}"
            f" to {high:.2%}), C = {score.C:g}"
        ),
        "\nconfusion matrix: one row for each true class, one column for each predicted class",
        *("".join(f"{word:>{width}}" for word in row) for row in (["", *names], *rows)),
    ]
