"""Errors, and the ranges that are estimated for them, with random and with suggested labels.

    python -m benchmarks.labels.estimates ROWS [--out FILE.json] [--draws 2] [--sets fruit steel]

ROWS is a folder as for `benchmarks.labels.views`. Pictures are described by learned features
and all plain views; a simulated person labels pictures at random, or those that are suggested. Each
line has the error on all pictures without a label, the estimate, and its range.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whatwhere as ww
from benchmarks.labels.views import OWN, PLAIN, Rows, read
from whatwhere.labelling.descriptions import Description

VIEWS = (*OWN, *PLAIN)
LABELS = (5, 10, 15, 20, 30, 40, 60)
MOST = 300  # pictures of a set
RESULTS = Path(__file__).parent / "results" / "estimates.json"


def session_of(rows: Rows, chosen: np.ndarray) -> ww.Labelling:
    """Begin a session of some pictures, described by several views."""
    parts = {name: rows.views[name][chosen] for name in VIEWS}
    matrix = torch.cat(list(parts.values()), 1)
    session = ww.Labelling(matrix)
    columns = {name: part.shape[1] for name, part in parts.items()}
    session.use(Description("views", matrix, None, None, columns))
    return session


def measure(rows: Rows, kind: str, draw: int) -> Iterator[dict[str, Any]]:
    """Label as a person would; yield what is estimated, and what is true."""
    generator = np.random.default_rng(draw)
    chosen = np.sort(generator.permutation(len(rows.y))[:MOST])
    truth = rows.y[chosen].astype(str)
    session = session_of(rows, chosen)
    order = generator.permutation(len(truth)).tolist()
    for count in range(1, max(LABELS) + 1):
        if kind == "suggested":
            (row,) = session.suggest(1)
            session.label({row: truth[row]})
        elif count in LABELS:
            session.label({row: truth[row] for row in order[:count]})
        if count not in LABELS:
            continue
        found = session.predict()
        others = ~found.said
        estimate = session.estimate()
        line = {"labels": count, "kind": kind, "draw": draw}
        line["error"] = round(float(np.mean(found.classes[others] != truth[others])), 4)
        if estimate is not None:
            line["estimate"] = round(estimate.share, 4)
            line["range"] = [round(estimate.low, 4), round(estimate.high, 4)]
        yield line


def summary(lines: list[dict[str, Any]]) -> str:
    """Say how often the range holds the error, and how far the estimate is off."""
    parts = []
    for kind in ("random", "suggested"):
        some = [line for line in lines if line["kind"] == kind and "range" in line]
        held = np.mean([line["range"][0] <= line["error"] <= line["range"][1] for line in some])
        off = np.mean([abs(line["estimate"] - line["error"]) for line in some])
        parts.append(f"{kind}: {held:.0%} of {len(some)} ranges hold the error, mean gap {off:.3f}")
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--draws", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    results: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(options.rows.glob("*.npz")):
        if options.sets and file.stem not in options.sets:
            continue
        rows = read(file)
        results[file.stem] = [
            line
            for kind in ("random", "suggested")
            for draw in range(options.draws)
            for line in measure(rows, kind, draw)
        ]
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(
            file.stem, summary([line for lines in results.values() for line in lines]), flush=True
        )


if __name__ == "__main__":
    main()
