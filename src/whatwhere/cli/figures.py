"""`whatwhere figures`: the figures of a run, and its report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.options import SOURCE_HELP, Engine, Quiet

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.figures import Section


class Format(StrEnum):
    png = "png"
    pdf = "pdf"
    svg = "svg"


def figures(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run folder, a model file, or a model known by name."),
    ],
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Draw only this figure; repeatable.")] = None,
    format: Annotated[Format, typer.Option(help="Format of the files; the animation is a GIF.")] = Format.png,
    compare: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="Another run to compare with; repeatable.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="IMAGES", help=f"{SOURCE_HELP} Default: the run's own."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--images", min=1, help="How many images to infer; default: 24 to 200 by their size.")
    ] = None,
    image: Annotated[
        int | None, typer.Option(min=0, help="Index of the image to decompose, in IMAGES; default: one of them.")
    ] = None,
    feature: Annotated[
        int | None, typer.Option(min=1, help="Feature whose positions are drawn; default: the most active one.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of images and samples.")] = 0,
    engine: Engine = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures and of report.html; default: RUN/figures.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Draw the figures of a run, and write all of them on one page, report.html."""
    from whatwhere.cli.inputs import source_of
    from whatwhere.cli.stages import Stages
    from whatwhere.figures import FigureContext, check_figure, draw, figure_names, run_report
    from whatwhere.learning import read_run

    context = FigureContext(
        read_run(run),
        choose_images(data or source_of(run), count, image, seed),
        tuple(read_run(other) for other in compare or ()),
        feature=None if feature is None else feature - 1,
        seed=seed,
        engine=engine,
        stage=Stages(quiet=quiet).stage,
    )
    names = only or figure_names(context)
    for name in names:
        check_figure(context, name)
    folder = out or (run if run.is_dir() else run.parent) / "figures"
    _make_folder(folder)
    drawn = {}
    for name in names:
        drawn[name] = draw(context, name)
        typer.echo(_write(drawn[name], folder / name, format))
    if not only:
        page = folder / "report.html"
        _write_bytes(page, run_report(context, drawn).encode())
        typer.echo(page)


def choose_images(source: str, count: int | None, image: int | None, seed: int) -> Tensor:
    """A varied choice of images, from the test split of a named set; the image of this index, if given, is first."""
    import numpy as np

    from whatwhere import data
    from whatwhere.data.catalogue import CATALOGUE
    from whatwhere.errors import SpecError
    from whatwhere.figures.selection import default_count, spread

    images = data.load(source, split="test" if source in CATALOGUE else None)
    chosen = spread(images, count or default_count(images), seed)
    if image is not None:
        if image >= len(images):
            raise SpecError(f"--image {image} was given; {images.name} has {len(images):,} images, counted from 0")
        chosen = np.concatenate([[image], chosen[chosen != image]])[: len(chosen)]
    return images[chosen]


def _make_folder(folder: Path) -> None:
    """Create the folder of the figures before anything slow begins."""
    from whatwhere.files import disk_errors

    with disk_errors(f"creating {folder}", "choose another folder with --out"):
        folder.mkdir(parents=True, exist_ok=True)


def _write(section: Section, path: Path, format: Format) -> Path:
    """Write the figure of a section; its suffix is added to the path."""
    import io

    from whatwhere.figures import save

    assert section.figure is not None
    if isinstance(section.figure, bytes):
        return _write_bytes(path.with_name(f"{path.name}.gif"), section.figure)
    file = io.BytesIO()
    save(section.figure, file, format)
    return _write_bytes(path.with_name(f"{path.name}.{format}"), file.getvalue())


def _write_bytes(path: Path, content: bytes) -> Path:
    from whatwhere.files import disk_errors, write_atomic

    with disk_errors(f"writing {path}", "choose another folder with --out"):
        write_atomic(path, content)
    return path
