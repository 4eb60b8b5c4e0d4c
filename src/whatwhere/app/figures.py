"""`whatwhere figures`: the figures of a run, and its report."""

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import whatwhere as ww
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import ImageInput, read_examples, read_recording, source_of
from whatwhere.commands.old_forms import Reordered
from whatwhere.commands.outputs import Stages, claim, write
from whatwhere.spec.checks import require
from whatwhere.spec.execution import Execution

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

_Format = Literal["png", "pdf", "svg"]


@command(
    (ImageInput, "rate start end"),
    (Execution, "engine"),
    flags="rate start end",
    old=(Reordered("run images", "run --images"),),
)
def figures(
    run: Path,
    *,
    images: str | None = None,
    events: Path | None = None,
    only: list[str] | None = None,
    format: _Format = "png",
    out: Path | None = None,
    settings: Settings,
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    """Draw the figures of a run, and collect them on one page, report.html.

    The command updates the page after every figure, so if you stop it, the page shows the figures
    that are ready. The animation is the slowest figure and comes last.

    Parameters
    ----------
    only
        draw only this figure; repeatable
    images
        as for `encode`; default: the run's, or the test images of its data set
    events
        for a recording, the table that `whatwhere events` wrote: its events are not searched again,
        and rows that you removed are not drawn
    format
        format of the files; the animation is always a GIF
    out
        folder for the figures and report.html; default: RUN/figures

    Examples
    --------
    $ whatwhere figures runs/mine
    $ whatwhere figures runs/mine --only filters --format pdf
    """
    source = images or source_of(run)
    stages = Stages(quiet)
    drawing = _open_figures(run, source, events, only, settings, stages)
    names = only or drawing.names
    for name in names:
        drawing.check(name)
    folder = out or (run if run.is_dir() else run.parent) / "figures"
    files = {name: folder / f"{name}.{'gif' if name == 'inference' else format}" for name in names}
    report = [] if only else [folder / "report.html"]
    claim([*files.values(), *report], run, source, folder=folder, overwrite=overwrite)
    drawn = {}
    for number, (name, file) in enumerate(files.items(), start=1):
        stages.note(f"figure {number} of {len(files)}: {name}")
        drawn[name] = drawing.draw(name)
        write(file, _encode_figure(drawn[name].figure, format), folder)
        typer.echo(file)
        for page in report:
            write(page, drawing.report(drawn).encode(), folder)
    for page in report:
        typer.echo(page)


def _open_figures(
    run: Path,
    source: str,
    events: Path | None,
    only: list[str] | None,
    settings: Settings,
    stages: Stages,
) -> "ww.signals.RecordingFigures | ww.figures.RunFigures":
    """Draw the figures of a run; of a recording if the model has waveforms."""
    from whatwhere.inference.target import in_model_units
    from whatwhere.signals.event_table import check_events, events_within, read_events

    trained = ww.read_run(run)
    engine = settings.of(Execution).engine
    spec = trained.model.spec
    if spec.for_signals and spec.depth == 1:
        signals = read_recording(run, source, settings.of(ImageInput))
        table = None
        if events is not None:
            table = read_events(events, signals.channel_names)
            check_events(events, table, spec.layers[0].maps, signals.first + signals.shape[2])
            table = events_within(table, signals)
        drawing = ww.signals.RecordingFigures(
            trained, signals, table, engine=engine, stage=stages.stage
        )
        # figures of pictures are also drawn of a recording, if --only asks for one of them
        if not only or set(only) <= set(drawing.names):
            return drawing
    require(
        events is None,
        "--events for a run that learned from pictures",
        "a run that learned from a recording; leave --events out",
    )
    chosen = _choose_images(in_model_units(spec, read_examples(run, source)))
    return ww.figures.RunFigures(trained, chosen, engine=engine, stage=stages.stage)


def _encode_figure(figure: "Figure | bytes | None", format: _Format) -> bytes:
    """Return the file of a figure of matplotlib; an animation is a file already."""
    if isinstance(figure, bytes):
        return figure
    assert figure is not None, "a section without a figure"
    content = io.BytesIO()
    ww.figures.save(figure, content, format)
    return content.getvalue()


def _choose_images(images: "ww.data.Images") -> "Tensor":
    """Return a random choice of images, always the same: as many as 100,000 values hold, which
    bounds the time of inference, but from 24 to 200."""
    import numpy as np

    count = max(24, min(200, 100_000 // math.prod(images.shape)))
    return images[np.random.default_rng(0).permutation(len(images))[:count]]
