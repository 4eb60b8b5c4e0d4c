"""The index of the result files: reproduction/results/README.md, a table of contents for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduction.jobs import TrainingJob, seeds_of
from reproduction.naming import OTHER
from reproduction.records import MODELS, Record, ResultStore
from reproduction.results import TrainingResult
from reproduction.scale import Scale
from reproduction.table import ALL_TABLES, SEEDS, cells_of, read_table

INTRODUCTION = """\
# Result files

One JSON file for each result, and the trained models. [RESULTS.md](../../RESULTS.md) has the tables with the paper's
numbers; [docs/results/reproduction.md](../../docs/results/reproduction.md#result-files) says what a file holds. A
result that several tables share is listed in each of them and lives under the first. `python -m reproduction report`
writes this page.
"""


def index_page(scales: Sequence[tuple[Scale, ResultStore]]) -> str:
    """The page, from the result files of these scales."""
    parts = [INTRODUCTION]
    for scale, store in scales:
        parts.append(f"## Scale: {scale.name}\n")
        parts += [text for table in ALL_TABLES if (text := table_section(table, scale, store))]
        if other := [record for record in store.records.values() if record.name.startswith(f"{OTHER}/")]:
            lines = [f"- {record.name}: {file_link(record, scale)}" for record in other]
            parts.append("### Asked for by no table\n\n" + "\n".join(lines) + "\n")
        parts.append(models_section(scale, store))
    return "\n".join(parts)


def table_section(name: str, scale: Scale, store: ResultStore) -> str:
    """The files of one table; empty where nothing was measured."""
    lines = []
    for cell in cells_of(name, scale, SEEDS):
        files = [file_link(record, scale) for job in cell.jobs if (record := store.find(job)) is not None]
        if files:
            lines.append(f"| {cell.row} | {cell.column} | {', '.join(dict.fromkeys(files))} |")
    if not lines:
        return ""
    head = [f"### {name}: {read_table(name).title}", "", "| row | column | files |", "| --- | --- | --- |"]
    return "\n".join([*head, *lines]) + "\n"


def models_section(scale: Scale, store: ResultStore) -> str:
    """The trainings: the record of each, and its model where that is published."""
    head = [f"### {MODELS}: the trainings", "", "| history | model | epochs | seconds |", "| --- | --- | --- | --- |"]
    lines = []
    for job, record in store.records.items():
        if isinstance(job, TrainingJob):
            file = f"{record.name}.safetensors"
            published = (store.folder / file).is_file()
            model = f"[{Path(file).name}]({scale.name}/{file})" if published else ""
            epochs, seconds = len(record.result.history), record.result.training_seconds
            lines.append(f"| {file_link(record, scale)} | {model} | {epochs} | {seconds:.0f} |")
    return "\n".join([*head, *lines]) + "\n" if lines else "No training yet.\n"


def file_link(record: Record[Any], scale: Scale) -> str:
    """A link to a record: its seed and its error rate, or its name where it is a training."""
    seeds = seeds_of(record.job)
    if isinstance(record.result, TrainingResult):
        text = Path(record.name).name
    elif len(seeds) == 1:
        text = f"seed {seeds[0]}: {100 * record.result.error:.2f} %"
    else:
        text = f"{100 * record.result.error:.2f} %"
    return f"[{text}]({scale.name}/{record.name}.json)"
