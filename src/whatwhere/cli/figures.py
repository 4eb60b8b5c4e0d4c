"""`whatwhere figures`: the figures of a run, and its report."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from whatwhere.cli.command import command
from whatwhere.cli.inputs import read_examples, source_of
from whatwhere.cli.settings import Settings
from whatwhere.spec.checks import Checked, Count, CountOrZero
from whatwhere.spec.training import TrainingOptions

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.data import Images

Format = Literal["png", "pdf", "svg"]
ANIMATION = "inference"
IMAGES = (24, 200)  # that are inferred, at least and at most
VALUES = 100_000  # values (pixels × channels) of all images together, which bounds the time of inference


@dataclass(frozen=True, kw_only=True)
class FigureOptions(Checked):
    """What `figures` draws.

    only     draw only this figure; repeatable
    count    how many images to infer; default: 24 to 200 by their size
    image    index of the image to decompose, from 0; default: one of them
    feature  number of the feature whose positions are drawn, from 1; default: the most active one
    seed     of the choice of images and samples
    """

    only: tuple[str, ...] = ()
    count: Count | None = None
    image: CountOrZero | None = None
    feature: Count | None = None
    seed: CountOrZero = 0


@command(FigureOptions, (TrainingOptions, "engine"), flags="only")
def figures(
    run: Path,
    images: str | None = None,
    *,
    format: Format = "png",
    out: Path | None = None,
    overwrite: bool = False,
    settings: Settings,
    quiet: bool = False,
) -> None:
    """Draw the figures of a run, and write all of them on one page, report.html.

    images   as for `encode`; default: those of the run
    format   of the files; the animation is a GIF
    out      folder of the figures and of report.html; default: RUN/figures
    """
    from whatwhere.cli.outputs import claim, write
    from whatwhere.cli.stages import Stages
    from whatwhere.figures import RunFigures
    from whatwhere.inference.checks import in_model_units
    from whatwhere.learning import read_run

    options, source, trained = settings.of(FigureOptions), images or source_of(run), read_run(run)
    examples = in_model_units(trained.model.spec, read_examples(run, source))
    drawing = RunFigures(
        trained,
        choose_images(examples, options),
        image=None if options.image is None else 0,
        feature=None if options.feature is None else options.feature - 1,
        seed=options.seed,
        engine=settings.of(TrainingOptions).engine,
        stage=Stages(quiet).stage,
    )
    names = options.only or drawing.names
    for name in names:
        drawing.check(name)
    folder = out or (run if run.is_dir() else run.parent) / "figures"
    files = {name: folder / f"{name}.{'gif' if name == ANIMATION else format}" for name in names}
    report = [] if options.only else [folder / "report.html"]
    claim([*files.values(), *report], run, source, folder=folder, overwrite=overwrite)
    drawn = {}
    for name, file in files.items():
        drawn[name] = drawing.draw(name)
        write(file, content_of(drawn[name].figure, format))
        typer.echo(file)
    for file in report:
        write(file, drawing.report(drawn).encode())
        typer.echo(file)


def content_of(figure: Any, format: str) -> bytes:
    """A figure as the content of a file; an animation is one already."""
    from whatwhere.figures import save

    if isinstance(figure, bytes):
        return figure
    file = io.BytesIO()
    save(figure, file, format)
    return file.getvalue()


def choose_images(images: Images, options: FigureOptions) -> Tensor:
    """A random choice of images; the one that was asked for, if any, is first."""
    import math

    import numpy as np

    from whatwhere.errors import SpecError

    image = options.image
    fewest, most = IMAGES
    count = options.count or max(fewest, min(most, VALUES // math.prod(images.shape)))
    chosen = np.random.default_rng(options.seed).permutation(len(images))[:count]
    if image is not None:
        if image >= len(images):
            raise SpecError(f"image = {image} was given; {images.name} has {len(images):,} images, counted from 0")
        chosen = np.concatenate([[image], chosen[chosen != image]])[: len(chosen)]
    return images[chosen]
