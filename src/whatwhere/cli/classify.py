"""`whatwhere classify`: the error rate of a linear SVM on the features of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.options import Device, Engine, Json, LearnedSteps, OptionalSource, Quiet, RunOrModel

if TYPE_CHECKING:
    import numpy as np

    from whatwhere.classification import Matrix
    from whatwhere.classification.protocol import FewLabels, Score
    from whatwhere.cli.stages import Stages
    from whatwhere.data import Images
    from whatwhere.model import DeconvNet
    from whatwhere.spec import Recipe

LabelFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Labels of IMAGES: an IDX or .npy file.")]
TestSource = Annotated[
    str | None,
    typer.Option(
        "--test", metavar="IMAGES", help="Test images; default: the test split of a named set, or a held-out sixth."
    ),
]
TestLabels = Annotated[Path | None, typer.Option(metavar="FILE", help="Labels of the test images.")]
Layers = Annotated[
    list[int] | None, typer.Option("--layer", help="Describe this layer; repeatable; default: as in the recipe.")
]
Few = Annotated[
    list[int] | None,
    typer.Option("--few", metavar="N", help="Also classify with only N labels, over ten random draws; repeatable."),
]
Cs = Annotated[list[float] | None, typer.Option("--C", metavar="C", help="A value of C to choose from; repeatable.")]


def classify(
    run: RunOrModel,
    images: OptionalSource = None,
    labels: LabelFile = None,
    test: TestSource = None,
    test_labels: TestLabels = None,
    layer: Layers = None,
    few: Few = None,
    C: Cs = None,
    steps: LearnedSteps = None,
    engine: Engine = "auto",
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Classify images by their features with a linear SVM.

    C is chosen on a sixth of the training images; then the SVM is fitted to all of them and tested once.
    """
    from dataclasses import asdict, replace

    from whatwhere.classification import protocol
    from whatwhere.cli.inputs import learned_settings, open_run, source_of
    from whatwhere.cli.stages import Stages

    recipe, model = open_run(run, device)
    if layer:
        recipe = replace(recipe, descriptor=replace(recipe.descriptor, layers=tuple(layer)))
    if steps is not None:
        model, inference = learned_settings(model, steps, [])
        recipe = replace(recipe, inference=inference, plan=())
    sets = read_sets(images or source_of(run), labels, test, test_labels)
    grid, stages = tuple(C or protocol.C_GRID), Stages(quiet=quiet)
    (x, y), (x_test, y_test) = _describe(model, sets, recipe, engine, stages)
    with stages.stage("choosing C on validation images", len(grid)) as advance:
        best, trials = protocol.choose({"": x}, y, grid=grid, device=model.device, progress=advance)
    with stages.stage("testing", 1):
        score = protocol.evaluate(x, y, x_test, y_test, best.C, device=model.device)
    draws = []
    for count in few or ():
        with stages.stage(f"{count} labels, ten draws", 10) as advance:
            draws.append(
                protocol.evaluate_few_labels(
                    x, y, x_test, y_test, count, grid=grid, device=model.device, progress=advance
                )
            )
    if as_json:
        facts = {"run": str(run), "training": sets[0].name, "test": sets[1].name, "dimensions": x.shape[1]}
        validation = [{"C": trial.C, "error": trial.error} for trial in trials]
        results = {"validation": validation, **asdict(score), "few_labels": [asdict(draw) for draw in draws]}
        typer.echo(json.dumps({**facts, **results}))
    else:
        typer.echo(f"{sets[0].name} ({len(y):,} images), tested on {sets[1].name} ({len(y_test):,} images)")
        typer.echo("\n".join(result_lines(score, draws, sets[0].classes)))


def _describe(
    model: DeconvNet, sets: tuple[Images, Images], recipe: Recipe, engine: str, stages: Stages
) -> list[tuple[Matrix, np.ndarray]]:
    """Descriptors and labels of the training and of the test images."""
    from whatwhere.classification import describe_images

    described = []
    for name, part in zip(("training", "test"), sets, strict=True):
        with stages.stage(f"describing {len(part):,} {name} images", len(part)) as advance:
            assert part.labels is not None
            described.append((describe_images(model, part, recipe, engine=engine, progress=advance), part.labels))
    return described


def read_sets(images: str, labels: Path | None, test: str | None, test_labels: Path | None) -> tuple[Images, Images]:
    """Labelled training and test images; without test images, a sixth of the others is held out, class by class."""
    import numpy as np

    from whatwhere import data
    from whatwhere.classification.linear_svm import check_labels
    from whatwhere.classification.protocol import folds
    from whatwhere.cli.inputs import labelled
    from whatwhere.data.catalogue import CATALOGUE
    from whatwhere.errors import SpecError

    if test is None and test_labels is not None:
        raise SpecError("--test-labels was given without --test; also give the test images")
    training = labelled(data.load(images, labels), "--labels")
    if test is not None:
        split = "test" if test in CATALOGUE else None
        return training, labelled(data.load(test, test_labels, split=split), "--test-labels")
    if images in CATALOGUE:
        return training, data.load(images, split="test")
    assert training.labels is not None
    check_labels(training.pixels, training.labels)
    held_out = folds(training.labels, seed=1) == 0
    test_rows, training_rows = np.flatnonzero(held_out), np.flatnonzero(~held_out)
    return training.subset(training_rows), training.subset(test_rows, f"a held-out sixth of {training.name}")


def result_lines(score: Score, draws: Sequence[FewLabels], classes: tuple[str, ...] | None) -> list[str]:
    """The result in words, and the confusion matrix."""
    low, high = score.interval
    out = [
        f"error {score.error:.2%} ({score.errors} of {score.images:,}; 95 % interval {low:.2%} to {high:.2%}), "
        + (f"C = {score.C:g}, " if score.C else "")
        + score.solver
    ]
    for draw in draws:
        low, high = draw.interval
        out.append(
            f"error {draw.mean:.2%} with {draw.labels} labels (95 % interval of ten draws {low:.2%} to {high:.2%})"
        )
    names = [str(c) if classes is None or c >= len(classes) else classes[c] for c in score.classes]
    name_width = max(len(name) for name in names) + 2
    cell_width = max(name_width, len(str(score.images)) + 2)
    out += ["", "confusion matrix: one row for each true class, one column for each predicted class"]
    out.append(" " * name_width + "".join(f"{name:>{cell_width}}" for name in names))
    for name, row in zip(names, score.confusion, strict=True):
        out.append(f"{name:>{name_width}}" + "".join(f"{number or '·':>{cell_width}}" for number in row))
    return out
