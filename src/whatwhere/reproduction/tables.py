"""The paper's tables and curves as data: rows × columns of differences, its numbers, and what it claims of them.

A file of tables/ holds one:

    title = "Max against Gaussian pooling"
    [[columns]]
    name = "Layer 1"
    layers = 1                              # the recipe that ends with layer 1
    [[rows]]
    name = "Max pooling"
    paper = [1.30]                          # in per cent, a number a column
    [rows.recipe.model.layers.each]         # what this row changes
    pooling_kind = "max"
    [[claims]]
    text = "Gaussian pooling beats max pooling"
    below = [["Gaussian pooling / Layer 1", "Max pooling / Layer 1"]]

A curve has an [x] in place of columns: the setting that is varied, and its values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

from whatwhere.errors import SpecError
from whatwhere.reproduction.baselines import BASELINES
from whatwhere.reproduction.scales import Scale, data_file
from whatwhere.reproduction.subjects import DataSpec, Subject, first_layers, model_subject, plain
from whatwhere.spec import Recipe
from whatwhere.spec_toml import build, override

TABLES = ("pooling", "joint", "nonnegativity", "reset", "steps", "priors", "cost", "sparsity", "comparison")
CHOICE = "choice"  # not in the paper: what it leaves open, chosen on validation images
Measure = Literal["error", "cost", "reconstruction", "penalty", "nonzeros"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """layers: end with this layer (0: the top); labels: learn from so few (0: from all)."""

    name: str
    recipe: dict = field(default_factory=dict)
    layers: int = 0
    measure: Measure = "error"
    labels: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """baseline: another method, measured here too; quoted: the paper's number stands alone, nothing is run.

    ensemble_size: the descriptors of models with so many seeds, side by side
    """

    name: str
    recipe: dict = field(default_factory=dict)
    paper: tuple[float, ...] = ()
    baseline: str = ""
    quoted: bool = False
    ensemble_size: int = 1


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The x axis of a curve: the setting that is varied, such as 'inference.steps'."""

    setting: str = ""
    label: str = ""
    scale: Literal["linear", "log"] = "linear"
    values: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says, or what we set out to reach. Cells are named 'row / column'; * stands for each.

    below        of each pair, the first is below the second (a * in both is the same row or column)
    every_epoch  … at every epoch of the training, not only at the last
    lowest       the lowest of all cells is one of these
    at_most      these cells are at most this, in per cent
    within       these cells exceed the paper's number by at most so many points
    scale        judged at this scale only
    """

    text: str
    below: tuple[tuple[str, str], ...] = ()
    every_epoch: bool = False
    lowest: tuple[str, ...] = ()
    at_most: dict = field(default_factory=dict)
    within: dict = field(default_factory=dict)
    scale: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """headline: measured with several seeds, its models kept; eval_split: as in DataSpec; note: for the reader."""

    title: str
    source: str = ""
    note: str = ""
    headline: bool = False
    eval_split: Literal["test", "validation"] = "test"
    recipe: dict = field(default_factory=dict)
    rows: tuple[Row, ...]
    columns: tuple[Column, ...] = ()
    x: Axis = Axis()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One number of a table at a scale: what is measured, and the paper's number, where it gives one."""

    table: str
    row: str
    column: str
    measure: str
    paper: float | None
    headline: bool
    subjects: tuple[Subject, ...]
    """one a seed; empty where nothing is to be run"""

    @property
    def name(self) -> str:
        return f"{self.row} / {self.column}"


def read_table(name: str) -> Table:
    """The table of this name."""
    if name not in (*TABLES, CHOICE):
        raise SpecError(f"table {name!r} was given; expected one of {', '.join((*TABLES, CHOICE))}, all or report")
    return build(Table, data_file("tables", name))


def columns_of(name: str, table: Table, scale: Scale) -> tuple[Column, ...]:
    """The columns; of a curve, one a value on its x axis. None with more labels than the scale has images."""
    values = scale.values.get(name, table.x.values)
    columns = table.columns or tuple(Column(name=f"{x:g}", recipe=nested(table.x.setting, x)) for x in values)
    return tuple(column for column in columns if column.labels < (scale.data.limit or math.inf))


def nested(setting: str, value: float) -> dict[str, Any]:
    """A setting such as 'inference.lam' as a table of differences."""
    number: Any = int(value) if value == int(value) else value  # a whole number serves for both kinds of settings
    return reduce(lambda inner, key: {key: inner}, reversed(setting.split(".")), number)


def cells_of(name: str, scale: Scale, seeds: int = 1) -> list[Cell]:
    """Every cell of a table, row by row, with this many seeds."""
    table = read_table(name)
    columns = columns_of(name, table, scale)
    data = replace(scale.data, eval_split=table.eval_split)
    found = []
    for row in table.rows:
        for i, column in enumerate(columns):
            paper = row.paper[i] if i < len(row.paper) and not math.isnan(row.paper[i]) else None
            measure = "few labels" if column.labels else column.measure
            subjects = () if row.quoted else subjects_of(table, row, column, scale, data, seeds)
            found.append(Cell(name, row.name, column.name, measure, paper, table.headline, subjects))
    return found


def subjects_of(
    table: Table, row: Row, column: Column, scale: Scale, data: DataSpec, seeds: int
) -> tuple[Subject, ...]:
    """What is measured for one cell, with each seed."""
    labels: dict[str, Any] = {"labels": column.labels} if column.labels else {}
    if row.baseline:
        baseline = BASELINES[row.baseline]
        settings = {"baseline": {"name": row.baseline, **baseline.settings}, "C": list(baseline.C), **labels}
        return (Subject("few labels" if labels else "error", data, settings),)
    recipe = recipe_of(table, row, column, scale)
    seeded = [replace(recipe, seed=seed) for seed in range(seeds)]
    if column.measure != "error":
        return tuple(model_subject(recipe, data) for recipe in seeded)
    kind: Literal["few labels", "error"] = "few labels" if labels else "error"
    if row.ensemble_size > 1:  # the seeds are within one subject
        settings = {"recipe": plain(recipe), "C": list(scale.C), "ensemble_size": row.ensemble_size, **labels}
        return (Subject(kind, data, settings),)
    return tuple(Subject(kind, data, {"recipe": plain(r), "C": list(scale.C), **labels}) for r in seeded)


def recipe_of(table: Table, row: Row, column: Column, scale: Scale) -> Recipe:
    """The scale's recipe with the differences of the table, the row and the column."""
    recipe = scale.recipe(table.recipe)
    for changes in (row.recipe, column.recipe):
        recipe = override(recipe, changes)
    return first_layers(recipe, column.layers) if column.layers else recipe
