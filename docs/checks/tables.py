"""The tables of pages, and the result files that they are made of."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def section_of(text: str, title: str) -> str:
    """The part of a page below a heading of the second level."""
    below = f"\n{text}".partition(f"\n## {title}\n")[2]
    return below.partition("\n## ")[0]


def rows_of(page: Path, section: str | None = None) -> dict[str, list[str]]:
    """The rows of the tables of a page, or of one section: the first cell, and the others."""
    text = page.read_text(encoding="utf-8")
    if section is not None:
        text = section_of(text, section)
    lines = [line.strip("|").split("|") for line in text.splitlines() if line[:1] == "|"]
    return {row.strip(): [cell.strip(" *") for cell in cells] for row, *cells in lines}


def study_results(name: str) -> dict[str, Any]:
    lines = (
        (ROOT / f"benchmarks/labels/results/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return {row["name"]: row for row in map(json.loads, lines)}
