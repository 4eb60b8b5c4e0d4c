"""Errors with 8 to 60 labels of suggested pictures that colours and edges describe, and the range
that the page estimates for them.

    python -m benchmarks.labels.plain_views FOLDER [FOLDER ...] [--idx IMAGES LABELS ...]

A folder has a sub-folder per class. Each set is drawn down to 400 pictures, twice, and labelled as
the page suggests, described by both views and by each alone. A line of
`results/plain_views.jsonl` is a session at a number of labels: its error, the estimate and its
range.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import whatwhere as ww
from whatwhere.labelling.descriptions import PlainSettings

RESULTS = Path(__file__).parent / "results" / "plain_views.jsonl"
LABELS = (8, 10, 15, 20, 30, 40, 60)
PICTURES = 400
DRAWS = 2


def sets(options: argparse.Namespace) -> Iterator[tuple[str, ww.data.Images]]:
    """The sets by their names."""
    for folder in options.folders:
        yield folder.name, ww.data.load(folder)
    for name, images, labels in options.idx:
        yield name, ww.data.load(images, labels)


def sessions(name: str, images: ww.data.Images) -> Iterator[dict[str, object]]:
    """Sessions of a set with each description."""
    colour, edges = PlainSettings().views
    for kind, views in (("both", [colour, edges]), ("colour", [colour]), ("edges", [edges])):
        for draw in range(DRAWS):
            rows = np.random.default_rng(draw).permutation(len(images))[:PICTURES]
            some = images.subset(rows)
            truth = np.asarray(some.labels).astype(str)
            session = ww.Labelling(some[:].numpy(), features=views)
            for count in range(1, max(LABELS) + 1):
                (row,) = session.suggested_rows(1)
                session.label({row: truth[row]})
                if count not in LABELS:
                    continue
                found = session.predict()
                others = ~found.said
                estimate = session.estimate()
                yield {
                    "set": name,
                    "rows": kind,
                    "draw": draw,
                    "labels": count,
                    "error": round(float((found.classes != truth)[others].mean()), 4),
                    "estimate": estimate and round(estimate.share, 4),
                    "range": estimate and [round(estimate.low, 4), round(estimate.high, 4)],
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--idx", nargs=3, action="append", default=[])
    options = parser.parse_args()
    lines = []
    for name, images in sets(options):
        lines += list(sessions(name, images))
        RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines))
        print(name, summary(lines), flush=True)


def summary(lines: list[dict[str, object]]) -> str:
    """How often the range holds the error."""
    ranges = [line for line in lines if line["range"] is not None]
    held = [low <= line["error"] <= high for line in ranges for low, high in [line["range"]]]
    return f"{np.mean(held):.0%} of {len(held)} ranges hold the error"


if __name__ == "__main__":
    main()
