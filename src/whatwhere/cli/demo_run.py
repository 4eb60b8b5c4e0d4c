"""The demo: train two layers on the embedded digits, classify by each, and write a report."""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F

from whatwhere import data
from whatwhere.classification import Matrix, describe_images, fit_svm, protocol
from whatwhere.classification.graph import UNLABELLED, GraphClassifier
from whatwhere.classification.metric import learn_metric
from whatwhere.cli.outputs import claim, write
from whatwhere.data import Images
from whatwhere.errors import listed
from whatwhere.explorer.export import Explorer
from whatwhere.learning import TrainedRun, TrainingCallbacks, TrainingOptions, train
from whatwhere.learning.reports import Stage
from whatwhere.spec import InferenceSpec, Recipe
from whatwhere.spec.toml import read_recipe

RESULT, REPORT, EXPLORER = "demo.json", "report.html", "explorer.html"
EXPLORED = 250  # examples in the explorer
LEARNED = 2_000  # images that each layer learns from in a stream
TITLE = "whatwhere: the demo"
LEAD = "Two layers of features learned from digits without their labels, and what a linear classifier makes of them."
SHOWN = 36  # reconstructed digits, in the report
LABELS, DRAWS = (1, 10), 5  # of each class for the graph, and how often they are drawn
GRAPH_C = 0.3  # of the SVM that learns from the classes of the graph
METRIC_SHARE = 4  # every fourth image makes the metric
RUN_FILES = ("recipe.toml", "model.safetensors", "history.jsonl")
FILES = (*RUN_FILES, RESULT, REPORT, EXPLORER)


@dataclass(frozen=True)
class DemoScore:
    """The errors of a linear SVM with one description of the digits."""

    name: str
    dimensions: int
    score: protocol.Score

    def __str__(self) -> str:
        score, (low, high) = self.score, self.score.interval
        return (
            f"{score.error:.2%} ({score.errors} of {score.images:,}; {low:.2%} to {high:.2%}), "
            f"{self.dimensions:,} dimensions, C = {score.C:g}"
        )


@dataclass(frozen=True)
class FewLabelScore:
    """The errors with a few labels, in several draws of them, and their mean."""

    labels: int
    errors: tuple[float, ...]
    mean: float

    def __str__(self) -> str:
        return f"{self.mean:.2%} (mean of {len(self.errors)} draws: {min(self.errors):.2%} to {max(self.errors):.2%})"


@dataclass(frozen=True)
class Demo:
    """The outcome of a demo."""

    scores: tuple[DemoScore, ...]
    few_labels: tuple[FewLabelScore, ...]
    seconds: float
    learning_seconds: float
    run: TrainedRun
    report: Path

    @property
    def engine(self) -> str:
        return self.run.history[-1].engine

    def table(self) -> dict[str, Any]:
        """As plain values, for a file."""
        scores = {name: [asdict(score) for score in getattr(self, name)] for name in ("scores", "few_labels")}
        seconds = {"seconds": self.seconds, "learning_seconds": self.learning_seconds}
        return {**scores, **seconds, "engine": self.engine}


def run_demo(
    folder: Path,
    stage: Stage,
    *,
    engine: str = "auto",
    recipe: Recipe | None = None,
    images: tuple[Images, Images] | None = None,
    overwrite: bool = False,
) -> Demo:
    """Run the demo into a folder: the files of a run, `demo.json`, `explorer.html` and `report.html`.

    Files are written at the end: a demo that fails or is interrupted leaves an earlier one as it was.

    images  for training and for the test, with labels; by default the embedded digits
    """
    start = time.monotonic()
    claim([folder / file for file in FILES], folder=folder, overwrite=overwrite)
    recipe = recipe or read_recipe("demo")
    training, test = images or (data.load("digits"), data.load("digits", split="test"))
    with tempfile.TemporaryDirectory() as workplace:
        run = learn(recipe, training, Path(workplace) / "run", stage, engine)
        contents = {file: (Path(workplace) / "run" / file).read_bytes() for file in RUN_FILES}
    scores, learned = [], time.monotonic() - start
    assert training.labels is not None
    assert test.labels is not None
    for name, x, x_test in descriptions(run, training, test, engine, stage):
        with stage(f"{name}: linear SVM", len(protocol.C_GRID) + 1) as advance:
            best, _ = protocol.choose(x, training.labels, progress=advance)
            tested = protocol.evaluate(x, training.labels, x_test, test.labels, best.C)
            scores.append(DemoScore(name, x.shape[1], tested))
            advance(1)
    few = few_label_scores(run, (training, test), (x, x_test), engine, stage)
    with stage("the explorer: inferring examples", min(EXPLORED, len(test))) as advance:
        made = Explorer(run.model, recipe, test, name="the demo", examples=EXPLORED, engine=engine)
        contents[EXPLORER] = made.export(advance).encode()
    demo = Demo(tuple(scores), few, time.monotonic() - start, learned, run, folder / REPORT)
    with stage("drawing the report", 1) as advance:
        contents[REPORT] = demo_page(demo, test).encode()
        advance(1)
    contents[RESULT] = (json.dumps(demo.table(), indent=1) + "\n").encode()
    for file, content in contents.items():
        write(folder / file, content)
    return demo


def learn(recipe: Recipe, images: Images, folder: Path, stage: Stage, engine: str) -> TrainedRun:
    """Train all layers in a stream."""
    depth, count = recipe.model.depth, min(LEARNED, len(images))
    with stage(f"learning {depth} layers, each from {count:,} images", depth * count) as advance:
        options = TrainingOptions(engine=engine, device="cpu", checkpoint_every=0)
        callbacks = TrainingCallbacks(on_batch=lambda report: advance(report.images))
        return train(images, recipe, folder, image_count=count, options=options, callbacks=callbacks)


def descriptions(
    run: TrainedRun, training: Images, test: Images, engine: str, stage: Stage
) -> Iterator[tuple[str, Matrix, Matrix]]:
    """The images described by their pixels, of unit length as the model's descriptors are, then by every layer."""
    pixels, pixels_test = (F.normalize(part[:].flatten(1), dim=1).numpy() for part in (training, test))
    yield "raw pixels", pixels, pixels_test
    for k in range(1, run.model.spec.depth + 1):
        by_layer = replace(run.recipe, descriptor=replace(run.recipe.descriptor, layers=(k,)))
        count = len(training) + len(test)
        with stage(f"layer {k}: inferring {count:,} images", count) as advance:
            x, x_test = (
                describe_images(run.model, part, by_layer, engine=engine, progress=advance) for part in (training, test)
            )
        yield f"layer {k}", x, x_test


def few_label_scores(
    run: TrainedRun, images: tuple[Images, Images], rows: tuple[Matrix, Matrix], engine: str, stage: Stage
) -> tuple[FewLabelScore, ...]:
    """Errors on test images, with a few labels of the training images, drawn several times.

    A graph gives all training images a class, and a linear SVM learns from these.

    images, rows  for training and for the test, and their descriptors
    """
    y, y_test = (part.labels for part in images)
    assert y is not None
    assert y_test is not None
    some = images[0].subset(np.arange(0, len(y), METRIC_SHARE))
    with stage(f"few labels: distorting {len(some):,} images", len(some)) as advance:
        metric = learn_metric(run.model, some, run.recipe, engine=engine, progress=advance)
    z, z_test = (metric(part).numpy() for part in rows)
    counts, scores = [each * len(np.unique(y)) for each in LABELS], []
    with stage(f"{listed(counts)} labels: the graph", DRAWS * len(counts)) as advance:
        graph = GraphClassifier(class_prior="uniform").fit(z, y)
        for count in counts:
            errors = []
            for seed in range(DRAWS):
                labelled = data.few_labels(y, count, seed)
                given = np.full(len(y), UNLABELLED)
                given[labelled] = y[labelled]
                svm = fit_svm(z, graph.refit(given).transduction_, GRAPH_C)
                errors.append(float(np.mean(svm.predict(z_test) != y_test)))
                advance(1)
            scores.append(FewLabelScore(count, tuple(errors), float(np.mean(errors))))
    return tuple(scores)


def demo_page(demo: Demo, test: Images) -> str:
    """The report as one HTML file; it needs no other file, and links to the explorer."""
    from whatwhere.figures import RunFigures, Section, report

    # the few steps that serve a classifier leave reconstructions blurred
    converged = InferenceSpec.coding(lam=demo.run.recipe.inference.lam)
    drawing = RunFigures(demo.run, test[:SHOWN], inference=converged, engine=demo.engine)
    top = demo.run.model.spec.depth
    explain = "Draw a digit, watch inference explain it, and move the explanation with the mouse."
    errors = (
        f"The same linear SVM on {len(test):,} test digits, which were used neither for training nor for choosing "
        "settings: from the pixels, and from the features of each layer. C was chosen on a sixth of the training "
        "digits. The two percentages in brackets are the 95 % interval."
    )
    few = (
        "Labels spread from the few digits that have one to their neighbours, in a metric in which small distortions "
        "count little, until all training digits have a class; a linear SVM learns from these. It is assumed that "
        "classes are equally large. The errors are those on the test digits."
    )
    sections = [
        drawing.draw(f"decomposition-{top}"),
        Section("Explore it", explain, links={"Open the explorer": EXPLORER}),
        Section("Errors of a linear SVM", errors, facts={score.name: str(score) for score in demo.scores}),
        Section(
            "Errors with few labels", few, facts={f"{score.labels} labels": str(score) for score in demo.few_labels}
        ),
        drawing.draw("reconstructions"),
        drawing.draw("filters"),
        *(drawing.draw(f"planes-{k}") for k in range(2, top + 1)),
    ]
    return report(TITLE, sections, LEAD, facts(demo))


def facts(demo: Demo) -> dict[str, str]:
    """The settings and the time, by name."""
    recipe = demo.run.recipe
    maps = listed(layer.maps for layer in recipe.model.layers)
    images = [sum(report.images for report in demo.run.history if report.layer == k) for k in (1, recipe.model.depth)]
    return {
        "model": f"{recipe.model.depth} layers of {maps} maps, learned from {listed(f'{n:,}' for n in images)} digits",
        "inference": f"λ {recipe.inference.lam:g}, {recipe.inference.steps} steps, {demo.engine} engine",
        "time": f"{demo.seconds:.0f} s, of which {demo.learning_seconds:.0f} s of learning",
    }
