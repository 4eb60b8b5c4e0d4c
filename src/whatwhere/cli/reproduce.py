"""`whatwhere reproduce`: the paper's tables and curves, its numbers next to ours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.options import Device, Engine


class ScaleName(StrEnum):
    paper = "paper"
    quick = "quick"


Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="pooling, joint, nonnegativity, reset, steps, priors, cost, sparsity, comparison; `all` of these; "
        "`best`: the best features (best, best_few and best_fashion); `choice`: what the paper leaves open, on "
        "validation images; `report`: write RESULTS.md from the result files.",
    ),
]


def reproduce(
    names: Names,
    scale: Annotated[ScaleName, typer.Option(help="All of MNIST, or the embedded digits.")] = ScaleName.quick,
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the result files.")] = Path("results"),
    cache: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of unfinished trainings and unpublished models.")
    ] = Path("runs/reproduce"),
    device: Device = "auto",
    engine: Engine = "auto",
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop cleanly after this time; the same command continues.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=5, help="For every cell (default: the scale's number for the headline, else 1)."),
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=0, help="Epochs from one checkpoint of a training to the next; 0: when stopped.")
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Only cells whose name, 'row / column', contains this.")
    ] = "",
    page: Annotated[Path, typer.Option(metavar="FILE", help="The page that `report` writes.")] = Path("RESULTS.md"),
) -> None:
    """Measure what has no result file yet; a run that was cut off continues where it stopped."""
    from whatwhere.reproduction.report import write_report
    from whatwhere.reproduction.reproduce import ReproduceOptions
    from whatwhere.reproduction.reproduce import reproduce as run
    from whatwhere.reproduction.scale import read_scale
    from whatwhere.reproduction.table import BEST, TABLES

    groups = {"all": TABLES, "best": BEST, "report": ()}
    tables = [table for name in names for table in groups.get(name, (name,))]
    remaining = 0
    if tables:
        options = ReproduceOptions(results, cache, device, engine, minutes, seeds, checkpoint_every, only)
        remaining = run(list(dict.fromkeys(tables)), read_scale(scale), options, typer.echo).remaining
    if "report" in names:
        for path in write_report(results, page):
            typer.echo(path)
    if remaining:
        raise typer.Exit(3)
