"""`python -m reproduction`: the paper's tables and curves, its numbers next to ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reproduction.reproduce import RESULTS, ReproduceOptions, open_store, reproduce
from reproduction.scale import SCALES, Scale, read_scale
from reproduction.table import BEST, TABLES
from whatwhere.errors import WhatwhereError

NAMES = """\
pooling, joint, nonnegativity, reset, steps, priors, cost, sparsity, comparison, step_rule, first_lam, scratch; `all` of these; `best`: the best
features (best, best_few and best_fashion); `fashion`: the headline on Fashion-MNIST; `choice`, `fashion_choice`: what
the paper leaves open, on validation images; `sentences`: claims of the text that no table has; `report`: write RESULTS.md from the result files"""  # noqa: E501
GROUPS = {"all": TABLES, "best": BEST, "sentences": (), "report": ()}
UNFINISHED = 3  # exit status when time is up


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description=(
            "Measure what has no result yet; a run that was cut off continues where it stopped."
        ),
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=NAMES)
    parser.add_argument(
        "--scale", choices=SCALES, default="quick", help="all of MNIST, or the embedded digits"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FOLDER", help="folder of the result files"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("runs/reproduce"),
        metavar="FOLDER",
        help="folder of unfinished trainings and unpublished models",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="measure everything anew, into CACHE/again; the result files stay as they are",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument(
        "--minutes", type=float, help="stop cleanly after this time; the same command continues"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        choices=range(1, 6),
        help="for every cell (default: the scale's number for the headline, else 1)",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        help="epochs from one checkpoint of a training to the next; 0: when stopped",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only cells whose name, 'row / column', contains it",
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("RESULTS.md"),
        metavar="FILE",
        help="the page that `report` writes",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tables of these names, then write the report if it is asked for; returns the exit
    status."""
    given = parse(arguments)
    tables = [table for name in given.names for table in GROUPS.get(name, (name,))]
    remaining = 0
    if tables:
        cache = given.cache / "again" if given.again else given.cache
        options = ReproduceOptions(
            cache / "results" if given.again else given.results,
            cache,
            given.device,
            given.engine,
            given.minutes,
            given.seeds,
            given.checkpoint_every,
            given.only,
        )
        names, scale = list(dict.fromkeys(tables)), read_scale(given.scale)
        outcome = reproduce(names, scale, options, print)
        remaining = outcome.remaining
        if given.again and outcome.known and not outcome.measured and not remaining:
            print(f"These were measured by an earlier --again. Delete {cache} to measure again.")
        print_tables(names, scale, options.results)
    if "sentences" in given.names:
        from reproduction.sentences import write

        scale = read_scale(given.scale)
        print(write(scale, open_store(given.results, scale)))
    if "report" in given.names:
        from reproduction.report import write_report

        for path in write_report(given.results, given.page):
            print(path)
    return UNFINISHED if remaining else 0


def print_tables(names: Sequence[str], scale: Scale, results: Path) -> None:
    """Print tables with what is measured of them, next to the paper's numbers."""
    from reproduction.report import measured_tables, text_table

    measured = measured_tables(scale, open_store(results, scale))
    for name in names:
        if name in measured:
            print(f"\n{text_table(name, scale, measured[name])}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (WhatwhereError, OSError) as error:
        sys.exit(f"error: {error}")
