"""`whatwhere svm`: the error of a linear SVM on descriptors of labelled pictures."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import whatwhere as ww
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import (
    EXECUTION,
    notes_of,
    open_run,
    read_examples,
    read_images,
    with_preset,
)
from whatwhere.commands.old_forms import WithoutPictures
from whatwhere.commands.outputs import Report, Stages
from whatwhere.errors import ImageError, SpecError, printable
from whatwhere.errors import command as command_line
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, NotEmpty, Positive
from whatwhere.spec.execution import Execution

if TYPE_CHECKING:
    import numpy as np

    from whatwhere.classification.descriptors import Matrix
    from whatwhere.classification.protocol import Score


@dataclass(frozen=True, kw_only=True)
class _SvmOptions(Checked):
    """Choices of `svm`.

    Parameters
    ----------
    C
        values of C to choose from
    """

    C: Annotated[tuple[Positive, ...], NotEmpty()] = (0.3, 3.0, 30.0)


@command(
    _SvmOptions,
    EXECUTION,
    (Recipe, "inference descriptor"),
    flags="device",
    old=(WithoutPictures(),),
)
def svm(
    images: str,
    run: Path,
    *,
    labels: Path | None = None,
    test: str | None = None,
    preset: str = "recipe",
    settings: Settings,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Measure how well the features of a model separate labelled classes, with a linear SVM.

    The command chooses C on a sixth of the training images, fits the SVM to all of them, and tests
    it once.

    Parameters
    ----------
    images
        training images with labels, as for `encode`: a data set, a folder with a sub-folder for
        each class, or an .npz file
    labels
        labels of all images, if they have none: an IDX or .npy file
    test
        test images with labels; default: the test images of a named data set, or a sixth of the
        images, held out

    Examples
    --------
    $ whatwhere svm mnist mnist
    $ whatwhere svm train/ runs/mine --test test/
    """
    if labels is not None and labels.suffix.lower() == ".csv":
        few = command_line("whatwhere", "classify", images, run, "--labels", labels, "--out", "OUT")
        raise SpecError(
            f"Got --labels {printable(labels)}; expected labels of all images, in an IDX or .npy"
            f" file. To classify all pictures from a table of a few labels: {few}"
        )
    execution = settings.of(Execution)
    recipe, model = with_preset(
        *open_run(run, execution.device, execution.engine), preset, settings
    )
    trained = ww.TrainedRun(run.name, recipe, model, folder=run if run.is_dir() else None)
    training, tested = _read_sets(run, images, labels, test)
    measured = _measure(trained, training, tested, settings, Stages(quiet))
    facts = {"run": str(run), **measured.facts}
    typer.echo(Report(facts, measured.words).text(json_))


def _measure(
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
    options = settings.of(_SvmOptions)
    choice = choose_where(run.model, training, run.recipe, engine)
    recipe = with_choice(run.recipe, choice)

    def describe(images: "ww.data.Images", name: str) -> "Matrix":
        with stages.stage(f"describing {len(images):,} {name} images", len(images)) as advance:
            return describe_where(run.model, images, recipe, engine=engine, progress=advance)

    x = describe(training, "training")
    x_test = describe(tested, "test")
    y = _labels_of(training)
    y_test = _labels_of(tested)
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


def _read_sets(
    run: Path, images: str, labels: Path | None, test: str | None
) -> "tuple[ww.data.Images, ww.data.Images]":
    """Read labelled training and test images. Without test images, hold out a sixth of each class
    of the training images."""
    import numpy as np

    from whatwhere.classification.linear_svm import check_labels
    from whatwhere.classification.protocol import folds
    from whatwhere.data.catalogue import CATALOGUE, absolute_source

    training = read_images(run, images, labels)
    notes = notes_of(run)
    limit = notes.get("limit")
    is_own = absolute_source(images) == notes.get("source")
    if limit is not None and is_own and limit < len(training):
        training = training.subset(np.arange(limit))  # the images that the run was trained on
    if test is None and images in CATALOGUE:
        test = images
    tested = training if test is None else read_examples(run, test)
    for part in (training, tested):
        _labels_of(part)
    if test is not None:
        return training, tested
    y = _labels_of(training)
    check_labels(training.pixels, y)
    held_out = folds(y, seed=1) == 0
    rest = training.subset(np.flatnonzero(~held_out))
    rows = np.flatnonzero(held_out)
    return rest, training.subset(rows, f"a held-out sixth of {training.name}")


def _labels_of(images: "ww.data.Images") -> "np.ndarray":
    """Return the labels of images; images without labels raise an ImageError."""
    if images.labels is None:
        raise ImageError(
            f"{images.name} has no labels. To measure an SVM, label all images: give a folder with"
            " one sub-folder per class, an .npz file of images and labels, or --labels with an IDX"
            " or .npy file. To classify all pictures from labels of a few, use `whatwhere"
            " classify`."
        )
    return images.labels


def _result_lines(score: "Score", classes: tuple[str, ...] | None) -> list[str]:
    """Write the result in words, and the confusion matrix."""
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
