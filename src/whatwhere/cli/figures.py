"""`whatwhere figures`: the pictures of a run, and its report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.options import Engine

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.figures import Section


class Format(StrEnum):
    png = "png"
    pdf = "pdf"
    svg = "svg"


def figures(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or a result file of curves (JSON).")],
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Draw this picture alone; repeatable.")] = None,
    format: Annotated[Format, typer.Option(help="Of the picture files; the animation is a GIF.")] = Format.png,
    beside: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="Another run to set beside it; repeatable.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="A named set, a file or a folder; default: the run's own.")
    ] = None,
    count: Annotated[int, typer.Option("--images", min=1, help="How many images to infer.")] = 200,
    image: Annotated[int, typer.Option(min=0, help="Which of them to take apart.")] = 0,
    feature: Annotated[int | None, typer.Option(min=1, help="Whose map of where; default: the busiest.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
    engine: Engine = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures; default: RUN/figures.")] = None,
) -> None:
    """Draw the pictures of a run, by its own settings, into RUN/figures, and all of them into RUN/report.html."""
    from whatwhere.cli.inputs import source_of
    from whatwhere.figures import Material, draw, names, read_run, run_report

    if run.suffix == ".json":
        _draw_curves(run, format, out or run.parent)
        return
    home = read_run(run)
    material = Material(
        home,
        first_images(data or source_of(run), count),
        tuple(read_run(other) for other in beside or ()),
        image=image,
        feature=None if feature is None else feature - 1,
        seed=seed,
        engine=engine,
    )
    folder, drawn = out or run / "figures", {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in only or names(material):
        drawn[name] = draw(material, name)
        typer.echo(_write(drawn[name], folder / name, format))
    if not only:
        page = run / "report.html"
        page.write_text(run_report(material, drawn), encoding="utf-8")
        typer.echo(page)


def first_images(source: str, count: int) -> Tensor:
    """The first images of the test split where there is one, else of the source."""
    from whatwhere import data
    from whatwhere.data.catalogue import CATALOGUE

    return data.load(source, split="test" if source in CATALOGUE else None)[:count]


def _write(section: Section, path: Path, format: Format) -> Path:
    """Write a section's picture; the path gets its ending here."""
    from whatwhere.figures import save

    if isinstance(section.figure, bytes):
        path = path.with_name(f"{path.name}.gif")
        path.write_bytes(section.figure)
        return path
    assert section.figure is not None
    path = path.with_name(f"{path.name}.{format}")
    save(section.figure, path)
    return path


def _draw_curves(results: Path, format: Format, folder: Path) -> None:
    from whatwhere.figures import draw_file, save

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results.stem}.{format}"
    save(draw_file(results), path)
    typer.echo(path)
