"""The demo: train two layers on the embedded digits, classify by each, and write a report."""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from whatwhere import data
from whatwhere.classification import Matrix, describe_images, fit_svm, protocol
from whatwhere.classification.graph import UNLABELLED, GraphClassifier
from whatwhere.classification.metric import learn_metric
from whatwhere.commands.outputs import claim, write
from whatwhere.data import Images
from whatwhere.errors import listed
from whatwhere.explorer.page import Explorer
from whatwhere.explorer.settings import ExplorerSettings
from whatwhere.learning import TrainedRun, TrainingCallbacks, TrainingOptions, train
from whatwhere.progress import Stage
from whatwhere.spec import InferenceSpec, Recipe
from whatwhere.spec.toml import read_recipe

_RESULT = "demo.json"
REPORT = "report.html"
_EXPLORER = "explorer.html"
_TITLE = "whatwhere: the demo"
_LEAD = (
    "Two layers of features, learned from digits without labels, and the errors of a linear"
    " classifier on them."
)
_RUN_FILES = ("recipe.toml", "model.safetensors", "history.jsonl")
_FILES = (*_RUN_FILES, _RESULT, REPORT, _EXPLORER)


@dataclass(frozen=True)
class DemoSettings:
    """How much the demo learns, measures and shows, and by which engine.

    Parameters
    ----------
    learned
        images that each layer learns from in a stream
    labels
        labels of each class, for the graph
    draws
        how often these labels are drawn
    graph_c
        C of the SVM that learns from the classes of the graph
    metric_share
        the metric learns from one image of this many: a fourth; an eighth costs accuracy
        (benchmarks/learning/results/demo_metric.jsonl)
    explored
        examples in the explorer
    code_steps
        steps of inference for the codes of these examples
    shown
        reconstructed digits in the report
    engine
        the engine of all inference, by name
    """

    learned: int = 2_000
    labels: tuple[int, ...] = (1, 10)
    draws: int = 5
    graph_c: float = 0.3
    metric_share: int = 4
    explored: int = 250
    code_steps: int = ExplorerSettings.code_steps
    shown: int = 24
    engine: str = "auto"


_USUAL = DemoSettings()


class SvmErrors(TypedDict):
    """Errors of a linear SVM from one description; `score` has the fields of `protocol.Score`."""

    name: str
    dimensions: int
    score: dict[str, Any]


class FewLabelErrors(TypedDict):
    """Errors with a number of labels that were drawn several times."""

    labels: int
    errors: list[float]
    mean: float


class DemoResult(TypedDict):
    """What `demo.json` holds."""

    scores: list[SvmErrors]
    few_labels: list[FewLabelErrors]
    seconds: float
    learning_seconds: float
    engine: str


def svm_errors(result: DemoResult) -> dict[str, str]:
    """Return the errors of a linear SVM in words, for the pixels and for every layer."""
    return {
        row["name"]: (
            "{error:.2%} ({errors} of {images:,}; {interval[0]:.2%} to {interval[1]:.2%}), ".format(
                **row["score"]
            )
            + f"{row['dimensions']:,} dimensions, C = {row['score']['C']:g}"
        )
        for row in result["scores"]
    }


def few_label_errors(result: DemoResult) -> dict[str, str]:
    """Return the errors with a few labels, which were drawn several times, in words."""
    return {
        f"{row['labels']} labels": (
            f"{row['mean']:.2%} (mean of {len(row['errors'])} draws:"
            f" {min(row['errors']):.2%} to {max(row['errors']):.2%})"
        )
        for row in result["few_labels"]
    }


def run_demo(
    folder: Path,
    stage: Stage,
    *,
    recipe: Recipe | None = None,
    images: tuple[Images, Images] | None = None,
    settings: DemoSettings = _USUAL,
    overwrite: bool = False,
) -> DemoResult:
    """Run the demo into a folder: the files of a run, `explorer.html`, `report.html`, and the
    result, `demo.json`.

    Files are written at the end: a demo that fails or is interrupted leaves an earlier one as it
    was.

    Parameters
    ----------
    images
        images for training and for the test, with labels; by default the embedded digits
    settings
        how much is learned, measured and shown, and by which engine
    """
    start = time.monotonic()
    claim([folder / file for file in _FILES], folder=folder, overwrite=overwrite)
    recipe = recipe or read_recipe("demo")
    training, test = images or (data.load("digits"), data.load("digits", split="test"))
    y = _labels(training)
    y_test = _labels(test)
    with tempfile.TemporaryDirectory() as workplace:
        run = learn(recipe, training, Path(workplace) / "run", stage, settings)
        contents = {file: (Path(workplace) / "run" / file).read_bytes() for file in _RUN_FILES}
    learned = time.monotonic() - start
    scores: list[SvmErrors] = []
    for name, x, x_test in _descriptions(run, training, test, settings.engine, stage):
        with stage(f"{name}: linear SVM", len(protocol.C_GRID) + 1) as advance:
            best, _ = protocol.choose(x, y, progress=advance)
            tested = protocol.evaluate(x, y, x_test, y_test, best.C, start=best.svm)
            scores.append({"name": name, "dimensions": x.shape[1], "score": asdict(tested)})
            advance(1)
    few = _few_label_scores(run, training, (x, x_test), (y, y_test), stage, settings)
    with stage("the explorer: inferring examples", min(settings.explored, len(test))) as advance:
        made = Explorer(
            run.model,
            recipe,
            test,
            name="the demo",
            engine=settings.engine,
            learned_from=training.name,
            settings=ExplorerSettings(examples=settings.explored, code_steps=settings.code_steps),
        )
        contents[_EXPLORER] = made.export(advance).encode()
    result = DemoResult(
        scores=scores,
        few_labels=few,
        seconds=time.monotonic() - start,
        learning_seconds=learned,
        engine=run.history[-1].engine,
    )
    with stage("drawing the report", 1) as advance:
        contents[REPORT] = _demo_page(run, result, test[: settings.shown], len(test)).encode()
        advance(1)
    contents[_RESULT] = (json.dumps(result, indent=1) + "\n").encode()
    for file, content in contents.items():
        write(folder / file, content, folder)
    return result


def learn(
    recipe: Recipe,
    images: Images,
    folder: Path,
    stage: Stage,
    settings: DemoSettings = _USUAL,
) -> TrainedRun:
    """Train all layers in a stream."""
    depth = recipe.model.depth
    count = min(settings.learned, len(images))
    with stage(f"learning {depth} layers, each from {count:,} images", depth * count) as advance:
        options = TrainingOptions(engine=settings.engine, device="cpu", checkpoint_every=0)
        callbacks = TrainingCallbacks(on_batch=lambda report: advance(report.images))
        return train(
            images, recipe, folder, image_count=count, options=options, callbacks=callbacks
        )


def _descriptions(
    run: TrainedRun, training: Images, test: Images, engine: str, stage: Stage
) -> Iterator[tuple[str, Matrix, Matrix]]:
    """Yield the images described by their pixels, scaled to unit length like the model's
    descriptors, then by every layer."""
    pixels, pixels_test = (
        F.normalize(part[:].flatten(1), dim=1).numpy() for part in (training, test)
    )
    yield "raw pixels", pixels, pixels_test
    for k in range(1, run.model.spec.depth + 1):
        by_layer = replace(run.recipe, descriptor=replace(run.recipe.descriptor, layers=(k,)))
        count = len(training) + len(test)
        with stage(f"layer {k}: inferring {count:,} images", count) as advance:
            x, x_test = (
                describe_images(run.model, part, by_layer, engine=engine, progress=advance)
                for part in (training, test)
            )
        yield f"layer {k}", x, x_test


def _few_label_scores(
    run: TrainedRun,
    training: Images,
    rows: tuple[Matrix, Matrix],
    labels: tuple[np.ndarray, np.ndarray],
    stage: Stage,
    settings: DemoSettings,
) -> list[FewLabelErrors]:
    """Measure errors on test images, with a few labels of the training images, drawn several times.

    A graph assigns a class to every training image, and a linear SVM learns from these classes.

    Parameters
    ----------
    rows, labels
        descriptors and labels of the training and of the test images
    """
    y, y_test = labels
    chosen = np.arange(0, len(y), settings.metric_share)
    with stage(f"few labels: distorting {len(chosen):,} images", len(chosen)) as advance:
        metric = learn_metric(
            run.model,
            training.subset(chosen),
            run.recipe,
            described=rows[0][chosen],
            engine=settings.engine,
            progress=advance,
        )
    z, z_test = (metric(part).numpy() for part in rows)
    counts = [each * len(np.unique(y)) for each in settings.labels]
    scores: list[FewLabelErrors] = []
    title = f"{listed(counts)} labels: classifying with the graph"
    with stage(title, settings.draws * len(counts)) as advance:
        graph = GraphClassifier(class_prior="uniform").fit(z, y)
        for count in counts:
            errors = []
            for seed in range(settings.draws):
                labelled = data.few_labels(y, count, seed)
                given = np.full(len(y), UNLABELLED)
                given[labelled] = y[labelled]
                svm = fit_svm(z, graph.refit(given).transduction_, settings.graph_c)
                errors.append(float(np.mean(svm.predict(z_test) != y_test)))
                advance(1)
            scores.append({"labels": count, "errors": errors, "mean": float(np.mean(errors))})
    return scores


def _labels(images: Images) -> np.ndarray:
    assert images.labels is not None, "the demo has labels"
    return images.labels


def _demo_page(run: TrainedRun, result: DemoResult, shown: Tensor, tested: int) -> str:
    """Return the report as one HTML file; it needs no other file, and links to the explorer.

    Parameters
    ----------
    shown
        test images, which are reconstructed
    tested
        number of all test images
    """
    from whatwhere.figures import RunFigures, Section, report

    inference = run.recipe.inference
    top = run.model.spec.depth
    # a classifier needs only a few steps, but those leave reconstructions blurred
    converged = InferenceSpec.coding(lam=inference.lam)
    drawing = RunFigures(run, shown, inference=converged, engine=result["engine"])
    explain = "Draw a digit, watch inference explain it, and move the explanation with the mouse."
    errors = (
        f"Errors of the same linear SVM on {tested:,} test digits, given the pixels or the"
        " features of each layer. Neither training nor the choice of settings used these digits;"
        " a sixth of the training digits chose C. The brackets hold the number of errors and the"
        " 95 % interval."
    )
    few = (
        "A graph spreads the few labels to neighbouring digits, in a metric that discounts small"
        " distortions, until every training digit has a class. The graph assumes that all classes"
        " have the same size. A linear SVM then learns from these classes. The errors are on the"
        " test digits."
    )
    svm = {row["name"]: row["score"]["error"] for row in result["scores"]}
    graph = {f"{row['labels']} labels": row["mean"] for row in result["few_labels"]}
    sections = [
        Section("Errors of a linear SVM", errors, facts=svm_errors(result), bars=svm),
        Section("Errors with few labels", few, facts=few_label_errors(result), bars=graph),
        drawing.draw(f"decomposition-{top}"),
        drawing.draw("inference"),
        drawing.draw("reconstructions"),
        drawing.draw("filters"),
        *(drawing.draw(f"planes-{k}") for k in range(2, top + 1)),
    ]
    facts = {
        "model": f"{top} layers of {listed(layer.maps for layer in run.recipe.model.layers)} maps",
        "inference": f"λ {inference.lam:g}, {inference.steps} steps, {result['engine']} engine",
        "time": (
            f"{result['seconds']:.0f} s ({result['learning_seconds']:.0f} s to learn the features)"
        ),
    }
    lead = f"{_LEAD}\n\n{explain}"
    return report(_TITLE, sections, lead, facts, {"Open the explorer": _EXPLORER})
