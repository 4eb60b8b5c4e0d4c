"""RESULTS.md and the curves, generated from the result files alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction import sentences
from reproduction.baselines import Baseline
from reproduction.claims import MeasuredCell, Verdict, evaluate_claim, measured_cells
from reproduction.records import FIGURES, ResultStore
from reproduction.reproduce import open_store
from reproduction.results import Measure, mean_and_deviation
from reproduction.scale import SCALES, Scale, read_scale
from reproduction.table import (
    EXTRA,
    Table,
    all_cells,
    columns_of,
    read_table,
)
from whatwhere.errors import NoSuchRun

INTRODUCTION = """\
# Results

Every table, every curve and every measurable sentence of the paper (M. D. Zeiler and R. Fergus, *Differentiable Pooling for
Hierarchical Feature Learning*), our number next to the paper's. `python -m reproduction report` makes this page from the
result files under `reproduction/results/`; a test fails when the two disagree.
[How it is measured, and why some claims do not hold](docs/results/reproduction.md).

Errors are in per cent; several seeds are shown as mean ± standard deviation. A claim *holds* or *does not hold* by our
means. It makes *no difference within the seeds* if the means differ by no more than the larger standard deviation. It is
*open, one seed* if a cell with one seed would decide by 0.04 points or less. Where the 95 % intervals of two error rates
overlap, the page says so.
"""  # noqa: E501
SCALE_NOTES = {
    "paper": "All of MNIST: 60,000 training and 10,000 test images, 50 + 50 epochs of 100 steps.",
    "quick": (
        "1,000 + 1,000 of the embedded digits, a few epochs of a few steps, on a CPU. This checks"
        " that everything runs and shows the direction of the effects; its numbers are not"
        " comparable with the paper's, which are shown for orientation only."
    ),
}


if TYPE_CHECKING:
    from matplotlib.figure import Figure

CellsByName = Mapping[str, MeasuredCell]
COST_PARTS: tuple[Measure, ...] = ("reconstruction", "penalty", "nonzeros")
DOTS, FILTERS, INVARIANCE = "claims", "filters", "invariance"  # figures that belong to no table


def open_scales(folder: Path) -> list[tuple[Scale, ResultStore]]:
    """Every scale with its results under this folder."""
    return [(scale, open_store(folder, scale)) for scale in map(read_scale, SCALES)]


def results_page(scales: Sequence[tuple[Scale, ResultStore]]) -> str:
    """RESULTS.md, from the result files of these scales."""
    parts = [INTRODUCTION]
    for scale, store in scales:
        tables = measured_tables(scale, store)
        parts.append(f"## Scale: {scale.name}\n\n{SCALE_NOTES[scale.name]}\n")
        parts.append(picture("Our errors and the paper's", scale, DOTS) + "\n")
        parts.append(summary(scale, tables, store))
        order = sorted(tables, key=lambda name: read_table(name).section or "9")
        parts += [section(table, scale, tables[table]) for table in order]
        parts += sentence_section(scale, store)
    return "\n".join(parts)


def measured_tables(scale: Scale, store: ResultStore) -> dict[str, CellsByName]:
    """For every table, its cells with their results; tables that are not in the paper only if they
    were run.

    A table that shares baselines with another one has some results before it is run.
    """
    tables = {name: measured_cells(cells, store) for name, cells in all_cells(scale).items()}

    def was_run(cell: MeasuredCell) -> bool:
        return bool(cell.results) and not isinstance(
            getattr(cell.cell.jobs[0], "features", None), Baseline
        )

    return {
        name: cells
        for name, cells in tables.items()
        if name not in EXTRA or any(map(was_run, cells.values()))
    }


def summary(scale: Scale, tables: Mapping[str, CellsByName], store: ResultStore) -> str:
    """Return every claim with its verdict, a line each, in the order of the paper's sections; what
    is not in the paper comes last."""
    found = sentences.read(store.folder) or {}
    claims = [
        (one.section, "text", one.text, sentences.verdict(one, found[one.name]))
        for one in sentences.SENTENCES
        if found
    ]
    for name, cells in tables.items():
        table = read_table(name)
        claims += [
            (table.section, table.source, v.text, v.verdict) for v in verdicts(table, scale, cells)
        ]
    claims.sort(key=lambda claim: claim[0] or "9")  # stable: as in the tables within a section
    lines = ["| section | | claim | verdict |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {section or 'beyond'} | {source} | {text} | {judged} |"
        for section, source, text, judged in claims
    ]
    return "\n".join(lines) + "\n"


def sentence_section(scale: Scale, store: ResultStore) -> list[str]:
    """The claims of the text that no table has, with our numbers; nothing if they were not
    measured."""
    found = sentences.read(store.folder)
    if found is None:
        return []
    lines = ["### Sentences of the text", "", sentences.NOTE, ""]
    lines += ["| claim | measured | ours | verdict |", "| --- | --- | --- | --- |"]
    for one in sentences.SENTENCES:
        values = found[one.name]
        ours = "; ".join(
            f"{name}: {sentences.value_text(each)}" for name, each in values.items() if each
        )
        judged = sentences.verdict(one, values)
        lines.append(f"| {one.text} | {one.what} | {ours} | {judged} |")
    pictures = [
        picture("Filters of layer 1", scale, FILTERS),
        picture("Change of the features against shift and scale", scale, INVARIANCE),
    ]
    return ["\n".join([*lines, "", *pictures]) + "\n"]


def picture(title: str, scale: Scale, name: str) -> str:
    return f"![{title}](reproduction/results/{scale.name}/{FIGURES}/{name}.svg)"


def verdicts(table: Table, scale: Scale, cells: CellsByName) -> list[Verdict]:
    return [
        evaluate_claim(claim, cells) for claim in table.claims if claim.scale in ("", scale.name)
    ]


def section(name: str, scale: Scale, cells: CellsByName) -> str:
    """One table: its numbers, its figure and its claims."""
    table = read_table(name)
    lines = [f"### {table.title}" + (f" ({table.source})" if table.source else ""), ""]
    if table.note:
        lines += [table.note, ""]
    columns = [column.name for column in columns_of(name, table, scale)]
    lines.append(f"| {table.x.label} | " + " | ".join(columns) + " |")
    lines.append("| --- |" + " --- |" * len(columns))
    for row in table.rows:
        lines.append(
            f"| {row.name} | "
            + " | ".join(cell_text(cells[f"{row.name} / {c}"]) for c in columns)
            + " |"
        )
    if curves(name, cells) is not None:
        lines += ["", picture(table.title, scale, name)]
    lines.append("")
    for v in verdicts(table, scale, cells):
        lines.append(f"- *{v.verdict}*: {v.text}" + (f" ({v.numbers})" if v.numbers else ""))
    return "\n".join(lines).rstrip() + "\n"


def text_table(name: str, scale: Scale, cells: CellsByName) -> str:
    """One table for a terminal, in aligned columns."""
    table = read_table(name)
    columns = [column.name for column in columns_of(name, table, scale)]
    lines = [[table.x.label, *columns]]
    for row in table.rows:
        texts = [cell_text(cells[f"{row.name} / {column}"]) for column in columns]
        lines.append([row.name, *(text.replace("*", "") for text in texts)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    title = f"{table.title} ({table.source})" if table.source else table.title
    rows = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join([title, *rows])


def cell_text(cell: MeasuredCell) -> str:
    """Our number, then the paper's."""
    paper = (
        ""
        if cell.cell.paper is None
        else f"paper {cell.cell.paper:{'.2f' if cell.is_error else 'g'}}"
    )
    if not cell.cell.jobs:
        return paper
    if not cell.results:
        return f"not run ({paper})" if paper else "not run"
    mean, deviation = mean_and_deviation(cell.values)
    if math.isnan(mean):
        return ""
    digits = {"error": ".2f", "dimensions": ",.0f"}.get(cell.cell.measure, ".4g")
    ours = f"**{mean:{digits}}**"
    if deviation is not None:
        ours += f" ± {deviation:{'.2f' if cell.is_error else '.2g'}} ({len(cell.values)} seeds)"
    return f"{ours} ({paper})" if paper else ours


# Curves -------------------------------------------------------------------------------------------


def curves(name: str, cells: CellsByName) -> dict[str, Any] | None:
    """What a figure shows, in the form that `reproduction.curves` draws; None where there is
    nothing to show.

    The figure of trainings holds their `histories` instead: the mean over the seeds, one entry for
    each epoch.
    """
    table = read_table(name)
    if name == "cost":
        trained = {cell.cell.row: cell for cell in cells.values() if cell.results}
        histories = {row: cost_history(cell) for row, cell in trained.items()}
        return {"title": table.title, "histories": histories} if histories else None
    if not table.x.setting:
        return None
    lines = [line for row in table.rows if (line := _line(row.name, cells)) is not None]
    x = {"label": table.x.label, "scale": table.x.scale}
    return (
        {"title": table.title, "x": x, "y": {"label": "test error, %"}, "curves": lines}
        if lines
        else None
    )


def cost_history(cell: MeasuredCell) -> list[dict[str, float]]:
    """The parts of the cost at every epoch of layer 2, the mean over the seeds."""
    epochs = zip(*(cell.series(measure) for measure in COST_PARTS), strict=True)
    return [
        {"layer": 2, "epoch": i, **dict(zip(COST_PARTS, parts, strict=True))}
        for i, parts in enumerate(epochs, start=1)
    ]


def _line(row: str, cells: CellsByName) -> dict[str, Any] | None:
    """One curve through the cells of a row that were measured."""
    points = [cell for cell in cells.values() if cell.cell.row == row and cell.results]
    if len(points) < 2:
        return None
    line: dict[str, Any] = {
        "label": row,
        "x": [float(p.cell.column) for p in points],
        "y": [p.mean for p in points],
    }
    deviations = [mean_and_deviation(p.values)[1] for p in points]
    if all(deviation is not None for deviation in deviations):
        line["std"] = deviations
    return line


def write_report(folder: Path, page_file: Path) -> list[Path]:
    """Write RESULTS.md, and draw the curves."""
    if not any((folder / name).is_dir() for name in SCALES):
        remedy = "Give the folder that holds them with --results FOLDER."
        raise NoSuchRun("results in", folder, remedy=remedy)
    scales = open_scales(folder)
    page_file.write_text(results_page(scales), encoding="utf-8")
    return [page_file, *(path for scale, store in scales for path in draw_figures(scale, store))]


def paper_cells(scale: Scale, store: ResultStore) -> list[MeasuredCell]:
    """The error rates that both the paper and we have, in the paper's order."""
    return [
        cell
        for _, cells in sorted(
            measured_tables(scale, store).items(),
            key=lambda table: read_table(table[0]).section or "9",
        )
        for cell in cells.values()
        if cell.is_error and cell.results and cell.cell.paper is not None
    ]


def figures(scale: Scale, store: ResultStore) -> dict[str, Callable[[], Figure]]:
    """What draws each figure of a scale, by its name."""
    from reproduction import curves as drawing

    drawn: dict[str, Callable[[], Figure]] = {}
    for name, cells in measured_tables(scale, store).items():
        if content := curves(name, cells):
            drawn[name] = partial(drawing.draw, content)
    dots = [dot(cell) for cell in paper_cells(scale, store)]
    if dots:
        drawn[DOTS] = partial(drawing.draw_dots, dots)
    if sentences.read(store.folder) is not None:
        drawn[FILTERS] = partial(drawing.draw_filters, sentences.filters(store.folder))
        drawn[INVARIANCE] = partial(
            drawing.draw_invariance, sentences.invariance_curves(store.folder)
        )
    return drawn


def dot(cell: MeasuredCell) -> dict[str, Any]:
    """A line of the dot plot: our mean with its spread, and the paper's number."""
    source = read_table(cell.cell.table).source
    return {
        "label": f"{source}: {cell.cell.name}",
        "ours": cell.mean,
        "spread": cell.deviation or 0.0,
        "paper": cell.cell.paper,
    }


def draw_figures(scale: Scale, store: ResultStore) -> list[Path]:
    """Draw the figures of a scale."""
    from whatwhere.figures import save

    written = []
    for name, draw in figures(scale, store).items():
        path = store.folder / FIGURES / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        save(draw(), path)
        written.append(path)
    return written
