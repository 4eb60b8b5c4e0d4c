"""The tables of pages, and the result files that they are made of."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def rows_of(page: Path) -> dict[str, list[str]]:
    """The rows of a page's tables: the first cell, and the others."""
    lines = [
        line.strip("|").split("|")
        for line in page.read_text(encoding="utf-8").splitlines()
        if line[:1] == "|"
    ]
    return {row.strip(): [cell.strip(" *") for cell in cells] for row, *cells in lines}


def study_results(name: str) -> dict[str, Any]:
    lines = (
        (ROOT / f"reproduction/studies/results/{name}.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return {row["name"]: row for row in map(json.loads, lines)}
