"""RESULTS.md and the curves, made from result files and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whatwhere.errors import RunError
from whatwhere.reproduction.claims import SEEDS, Measured, Verdict, evaluate_claim, measured
from whatwhere.reproduction.results import Results, spread
from whatwhere.reproduction.scales import SCALES, Scale, read_scale
from whatwhere.reproduction.tables import CHOICE, TABLES, Table, cells_of, columns_of, read_table

INTRODUCTION = """\
# Results

Every table and every curve of the paper (M. D. Zeiler and R. Fergus, *Differentiable Pooling for Hierarchical Feature
Learning*), our number beside the paper's. This page is made by `whatwhere reproduce report` from the result files under
`results/`; a test fails when the two disagree. How it is measured: [docs/reproduction.md](docs/reproduction.md).

Errors are in per cent. *n* seeds are shown as mean ± standard deviation. A claim *holds* or *does not hold* by our own
means; where two error rates have overlapping 95 % intervals, that is said. Why some do not hold, by further trials:
[docs/reproduction.md](docs/reproduction.md#where-a-claim-does-not-hold).
"""
SCALE_NOTES = {
    "paper": "All of MNIST: 60,000 training and 10,000 test images, 50 + 50 epochs of 100 steps.",
    "quick": (
        "1,000 + 1,000 of the embedded digits, a few epochs of a few steps, on a CPU. This checks that everything runs "
        "and shows which way things go; its numbers are not comparable with the paper's, which stand beside them for "
        "orientation only."
    ),
}


Found = Mapping[str, Measured]


def page(folder: Path) -> str:
    """The whole of RESULTS.md, from the result files under this folder."""
    parts = [INTRODUCTION]
    for name in SCALES:
        scale = read_scale(name)
        found = found_in(folder / name, scale)
        parts.append(f"## Scale: {name}\n\n{SCALE_NOTES[name]}\n")
        parts.append(summary(scale, found))
        parts += [section(table, scale, cells) for table, cells in found.items()]
    return "\n".join(parts)


def found_in(folder: Path, scale: Scale) -> dict[str, Found]:
    """For every table, its cells with what the result files of this folder hold for them; the choice, if it was run."""
    results = Results(folder)
    found = {name: measured(cells_of(name, scale, SEEDS), results) for name in (*TABLES, CHOICE)}
    return {name: cells for name, cells in found.items() if name in TABLES or any(c.found for c in cells.values())}


def summary(scale: Scale, found: Mapping[str, Found]) -> str:
    """Every claim with its verdict, in one list."""
    lines = ["| claim | verdict | numbers |", "| --- | --- | --- |"]
    for name, cells in found.items():
        table = read_table(name)
        lines += [f"| {table.title}: {v.text} | *{v.verdict}* | {v.numbers} |" for v in verdicts(table, scale, cells)]
    return "\n".join(lines) + "\n"


def verdicts(table: Table, scale: Scale, cells: Found) -> list[Verdict]:
    return [evaluate_claim(claim, cells) for claim in table.claims if claim.scale in ("", scale.name)]


def section(name: str, scale: Scale, cells: Found) -> str:
    """One table: its numbers, its figure and its claims."""
    table = read_table(name)
    lines = [f"### {table.title}" + (f" ({table.source})" if table.source else ""), ""]
    if table.note:
        lines += [table.note, ""]
    columns = [column.name for column in columns_of(name, table, scale)]
    lines.append(f"| {table.x.label} | " + " | ".join(columns) + " |")
    lines.append("| --- |" + " --- |" * len(columns))
    for row in table.rows:
        lines.append(f"| {row.name} | " + " | ".join(text(cells[f"{row.name} / {c}"]) for c in columns) + " |")
    if curves(name, cells) is not None:
        lines += ["", f"![{table.title}](results/{scale.name}/figures/{name}.svg)"]
    lines.append("")
    for v in verdicts(table, scale, cells):
        lines.append(f"- *{v.verdict}*: {v.text}" + (f" ({v.numbers})" if v.numbers else ""))
    return "\n".join(lines).rstrip() + "\n"


def text(cell: Measured) -> str:
    """Our number, then the paper's."""
    paper = "" if cell.cell.paper is None else f"paper {cell.cell.paper:{'.2f' if cell.is_error else 'g'}}"
    if not cell.cell.subjects:
        return paper
    if not cell.found:
        return f"not run ({paper})" if paper else "not run"
    mean, deviation = spread(cell.values)
    digits = ".2f" if cell.is_error else ".4g"
    ours = f"**{mean:{digits}}**"
    if deviation is not None:
        ours += f" ± {deviation:{'.2f' if cell.is_error else '.2g'}} ({len(cell.values)} seeds)"
    return f"{ours} ({paper})" if paper else ours


# Curves ---------------------------------------------------------------------------------------------------------


def curves(name: str, cells: Found) -> dict[str, Any] | None:
    """What a figure shows, in the form that `whatwhere figures` draws; None where there is nothing to show.

    The figure of trainings holds their whole history instead, the mean over the seeds: `histories`, an epoch an entry.
    """
    table = read_table(name)
    if name == "cost":
        trained = {cell.cell.row: cell for cell in cells.values() if cell.found}
        measures = ("reconstruction", "penalty", "nonzeros")
        histories = {
            row: [
                {"layer": 2, "epoch": i, **dict(zip(measures, parts, strict=True))}
                for i, parts in enumerate(zip(*(cell.series(m) for m in measures), strict=True), start=1)
            ]
            for row, cell in trained.items()
        }
        return {"title": table.title, "histories": histories} if histories else None
    if not table.x.setting:
        return None
    lines = [line for row in table.rows if (line := _line(row.name, cells)) is not None]
    x = {"label": table.x.label, "scale": table.x.scale}
    return {"title": table.title, "x": x, "y": {"label": "test error, %"}, "curves": lines} if lines else None


def _line(row: str, cells: Found) -> dict[str, Any] | None:
    """One curve through the cells of a row that were measured."""
    points = [cell for cell in cells.values() if cell.cell.row == row and cell.found]
    if len(points) < 2:
        return None
    line: dict[str, Any] = {"label": row, "x": [float(p.cell.column) for p in points], "y": [p.mean for p in points]}
    deviations = [spread(p.values)[1] for p in points]
    if all(deviation is not None for deviation in deviations):
        line["std"] = deviations
    return line


def write_report(folder: Path, page_file: Path) -> list[Path]:
    """Write RESULTS.md, and the curves with their figures into results/SCALE/figures."""
    from whatwhere.figures import draw_content, save

    if not any(folder.glob("*/*.json")):
        raise RunError(f"{folder} was given as the folder of the results; there are none in it (--results FOLDER)")
    written = [page_file]
    page_file.write_text(page(folder), encoding="utf-8")
    for scale_name in SCALES:
        for name, cells in found_in(folder / scale_name, read_scale(scale_name)).items():
            content = curves(name, cells)
            if content is None:
                continue
            figures = folder / scale_name / "figures"
            figures.mkdir(parents=True, exist_ok=True)
            path = figures / f"{name}.json"
            path.write_text(as_text(content), encoding="utf-8")
            save(draw_content(content), figures / f"{name}.svg")
            written += [path, figures / f"{name}.svg"]
    return written


def as_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
