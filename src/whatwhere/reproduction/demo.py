"""The demo: train two layers on the embedded digits, classify by each, and write a report."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from whatwhere import data
from whatwhere.atomic import write_atomic
from whatwhere.classification import Matrix, describe_images, protocol
from whatwhere.data import Images
from whatwhere.errors import RunError
from whatwhere.explorer.export import export
from whatwhere.learning import TrainingCallbacks, TrainingOptions, train
from whatwhere.model import DeconvNet
from whatwhere.reproduction.baselines import RawPixels
from whatwhere.reproduction.evaluation import SOLVER
from whatwhere.spec import Recipe
from whatwhere.spec_toml import read_recipe

Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
EXPLORED = 1_000  # examples in the explorer
MARK = "demo.json"  # the results; a folder that holds it is a demo's, and may be made anew


@dataclass(frozen=True)
class Line:
    """One way to describe the digits, and the errors a linear SVM makes with it."""

    name: str
    dimensions: int
    score: protocol.Score
    trials: tuple[protocol.Trial, ...]


@dataclass(frozen=True)
class Demo:
    """What the demo came to."""

    lines: tuple[Line, ...]
    seconds: float
    engine: str
    recipe: Recipe
    model: DeconvNet
    report: Path


def demo_recipe() -> Recipe:
    with as_file(files("whatwhere.reproduction") / "recipes" / "demo.toml") as path:
        return read_recipe(path)


def run_demo(
    folder: Path,
    stage: Stage,
    *,
    engine: str = "auto",
    recipe: Recipe | None = None,
    images: tuple[Images, Images] | None = None,
) -> Demo:
    """Run it all into a folder: a run, `demo.json`, `explorer.html` and `report.html`.

    `images` are for training and for the test.
    """
    start = time.monotonic()
    recipe = recipe or demo_recipe()
    training, test = images or (data.load("digits"), data.load("digits", split="test"))
    clear(folder)
    with stage(
        f"learning {recipe.model.depth} layers from {len(training):,} images", epochs(recipe) * len(training)
    ) as advance:
        done = train(
            recipe,
            training,
            folder,
            options=TrainingOptions(engine=engine, device="cpu", checkpoint_every=0),
            callbacks=TrainingCallbacks(on_batch=lambda report: advance(report.images)),
        )
    lines = []
    for name, x, x_test in descriptions(done.model, recipe, training, test, engine, stage):
        with stage(f"{name}: linear SVM", len(protocol.C_GRID) + 1) as advance:
            lines.append(measure(name, x, training.labels, x_test, test.labels, advance))
    with stage("the explorer: inferring examples", min(EXPLORED, len(test))) as advance:
        page = export(done.model, recipe, test, name="the demo", examples=EXPLORED, engine=engine, progress=advance)
        write_atomic(folder / "explorer.html", page.encode("utf-8"))
    with stage("drawing the report", 1):
        seconds = time.monotonic() - start
        demo = Demo(tuple(lines), seconds, done.history[-1].engine, recipe, done.model, folder / "report.html")
        demo.report.write_text(draw_report(demo, test), encoding="utf-8")
    content = {"lines": [asdict(line) for line in lines], "seconds": seconds, "engine": demo.engine}
    (folder / MARK).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return demo


def clear(folder: Path) -> None:
    """Make the folder, or empty it where an earlier demo made it; another's folder is left alone."""
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / MARK).is_file():
            raise RunError(f"{folder} holds something that is not a demo; choose another folder with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("{}", encoding="utf-8")


def measure(
    name: str, x: Matrix, y: Any, x_test: Matrix, y_test: Any, advance: Callable[[int], None] = lambda n: None
) -> Line:
    """Choose C on a sixth of the training images, fit all of them, test once."""
    best, trials = protocol.choose({name: x}, y, solver=SOLVER, progress=advance)
    score = protocol.evaluate(x, y, x_test, y_test, best.C, solver=SOLVER)
    line = Line(name, x.shape[1], score, trials)
    advance(1)
    return line


def descriptions(
    model: DeconvNet, recipe: Recipe, training: Images, test: Images, engine: str, stage: Stage
) -> Iterator[tuple[str, Matrix, Matrix]]:
    """The images described in every way: by their pixels, then by every layer of the model."""
    yield "raw pixels", *RawPixels().describe(training, test)
    for k in range(1, recipe.model.depth + 1):
        by_layer = replace(recipe, descriptor=replace(recipe.descriptor, layers=(k,)))
        with stage(f"layer {k}: inferring {len(training) + len(test):,} images", len(training) + len(test)) as advance:
            x, x_test = (
                describe_images(model, part, by_layer, engine=engine, progress=advance) for part in (training, test)
            )
        yield f"layer {k}", x, x_test


def draw_report(demo: Demo, test: Images) -> str:
    """The page: errors side by side, reconstructions, filters."""
    from whatwhere.figures import Section, report
    from whatwhere.figures.sections import error_section, filter_section, plane_section, reconstruction_section
    from whatwhere.inference import infer

    recipe, model, best = demo.recipe, demo.model, demo.lines[-1]
    shown = test[:36]
    solution = infer(model, shown, recipe.inference, recipe.plan, engine=demo.engine)
    sections = [
        error_section(
            {line.name: (line.score.error, *line.score.interval) for line in demo.lines},
            f"The same linear SVM on {best.score.images:,} test digits, which were used neither for training nor for "
            "choosing settings: from the pixels, and from the features of each layer. C was chosen on a sixth of the "
            "training digits. A line is the 95 % interval.",
            {line.name: row(line) for line in demo.lines},
        ),
        reconstruction_section(model, shown, solution.latents, len(shown)),
        filter_section(model),
    ]
    if model.spec.depth > 1:
        sections.append(plane_section(model))
    sections.append(
        Section(
            "Explore it",
            "Draw a digit, watch inference explain it, and move the explanation with the mouse.",
            links={"Open the explorer": "explorer.html"},
        )
    )
    layers = " and ".join(str(layer.maps) for layer in model.spec.layers)
    facts = {
        "model": f"{model.spec.depth} layers of {layers} maps",
        "training": ", ".join(
            f"layer {k}: {learning.epochs} epochs of {learning.inference.steps} steps at λ {learning.inference.lam:g}"
            for k, learning in enumerate(recipe.learning, start=1)
        ),
        "inference": f"λ {recipe.inference.lam:g}, {recipe.inference.steps} steps, {demo.engine} engine",
        "time": f"{demo.seconds:.0f} s",
    }
    lead = (
        "Two layers of features learned from digits without their labels, and what a linear classifier makes of them."
    )
    return report("whatwhere: the demo", sections, lead, facts)


def row(line: Line) -> str:
    low, high = line.score.interval
    return (
        f"{line.score.error:.2%} ({line.score.errors} of {line.score.images:,}; {low:.2%} to {high:.2%}), "
        f"{line.dimensions:,} dimensions, C = {line.score.C:g}"
    )


def epochs(recipe: Recipe) -> int:
    return sum(learning.epochs for learning in recipe.learning)
