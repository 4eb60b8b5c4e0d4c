"""`whatwhere figures`: the figures of a run, and its report."""

import io
import math
from pathlib import Path
from typing import Any, Literal

import typer

import whatwhere as ww
from whatwhere.cli.command import Settings, command
from whatwhere.cli.inputs import read_examples, read_recording, source_of
from whatwhere.cli.outputs import Stages, claim, write
from whatwhere.spec.execution import Execution

Format = Literal["png", "pdf", "svg"]
IMAGES = (24, 200)  # that are inferred, at least and at most
VALUES = (
    100_000  # values (pixels × channels) of all images together, which bounds the time of inference
)


@command((Execution, "engine"))
def figures(
    run: Path,
    images: str | None = None,
    *,
    only: list[str] | None = None,
    format: Format = "png",
    out: Path | None = None,
    overwrite: bool = False,
    settings: Settings,
    quiet: bool = False,
) -> None:
    """Draw the figures of a run, and write all of them on one page, report.html.

    only     draw only this figure; repeatable
    images   as for `encode`; default: those of the run
    format   of the files; the animation is a GIF
    out      folder of the figures and of report.html; default: RUN/figures
    """
    from whatwhere.inference.target import in_model_units

    source = images or source_of(run)
    trained = ww.read_run(run)
    engine = settings.of(Execution).engine
    stage = Stages(quiet).stage
    drawing: Any = None
    if trained.model.spec.for_signals and trained.model.spec.depth == 1:
        signals = read_recording(run, source)
        drawing = ww.figures.RecordingFigures(trained, signals, engine=engine, stage=stage)
    # a recording is not a picture, but who asks for the figures of one gets them
    if drawing is None or (only and not set(only) <= set(drawing.names)):
        examples = in_model_units(trained.model.spec, read_examples(run, source))
        chosen = choose_images(examples)
        drawing = ww.figures.RunFigures(trained, chosen, engine=engine, stage=stage)
    names = only or drawing.names
    for name in names:
        drawing.check(name)
    folder = out or (run if run.is_dir() else run.parent) / "figures"
    files = {name: folder / f"{name}.{'gif' if name == 'inference' else format}" for name in names}
    report = [] if only else [folder / "report.html"]
    claim([*files.values(), *report], run, source, folder=folder, overwrite=overwrite)
    drawn = {}
    for name, file in files.items():
        drawn[name], content = drawing.draw(name), io.BytesIO()
        figure: Any = drawn[name].figure
        if isinstance(figure, bytes):
            content.write(figure)
        else:
            ww.figures.save(figure, content, format)
        write(file, content.getvalue())
        typer.echo(file)
    for file in report:
        write(file, drawing.report(drawn).encode())
        typer.echo(file)


def choose_images(images: "ww.data.Images") -> Any:
    """A random choice of images, always the same."""
    import numpy as np

    fewest, most = IMAGES
    count = max(fewest, min(most, VALUES // math.prod(images.shape)))
    return images[np.random.default_rng(0).permutation(len(images))[:count]]
