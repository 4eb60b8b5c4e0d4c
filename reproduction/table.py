"""The paper's tables and curves as data: rows × columns of differences, the paper's numbers, and
its claims.

A file of tables/ holds several by name:

    [pooling]
    title = "Max against Gaussian pooling"
    [[pooling.columns]]
    name = "Layer 1"
    layers = 1                              # the recipe that ends with layer 1
    [[pooling.rows]]
    name = "Max pooling"
    paper = [1.30]                          # in per cent, a number a column
    [pooling.rows.recipe.model.layers.each] # what this row changes
    pooling = "max"
    [[pooling.claims]]
    text = "Gaussian pooling beats max pooling"
    below = [["Gaussian pooling / Layer 1", "Max pooling / Layer 1"]]

A curve has an [x] in place of columns: the setting that is varied, and its values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from typing import Any, Literal

from reproduction.baselines import BASELINES, Baseline
from reproduction.jobs import (
    LINEAR,
    ClassifierSpec,
    DataSpec,
    EvalSplit,
    EvaluationJob,
    FewLabelJob,
    Job,
    ModelFeatures,
    RecordedJob,
    TrainingJob,
    first_layers,
)
from reproduction.results import TRAINING_MEASURES, Measure
from reproduction.scale import Scale, data_file
from whatwhere import override
from whatwhere.errors import UnknownChoice
from whatwhere.spec import Recipe, build

TABLES = (
    "pooling",
    "joint",
    "nonnegativity",
    "reset",
    "steps",
    "priors",
    "cost",
    "sparsity",
    "comparison",
    "step_rule",
    "first_lam",
    "scratch",
)
BEST = ("best", "best_few", "best_fashion")  # beyond the paper, as all that follow
# a choice is made on validation images
EXTRA = (
    "finetuning",
    "fashion",
    "split",
    "deep",
    *BEST,
    "choice",
    "fashion_choice",
)
ALL_TABLES = (*TABLES, *EXTRA)
SEEDS = 5  # the most seeds that a cell can have


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    layers    the recipe ends with this layer (0: the top)
    labels    learn from so few (0: from all)
    """

    name: str
    recipe: dict[str, Any] = field(default_factory=dict)
    layers: int = 0
    measure: Measure = "error"
    labels: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row.

    paper          the paper's numbers, one for each column; nan where it gives none
    baseline       another method, measured in place of the model
    quoted         only the paper's number is shown; nothing is run
    ensemble_size  how many models, each with its own seed, are described side by side
    other_recipes  other models to describe side by side: what each changes from this row's recipe
    deskew         images are made upright first
    both_views     images as they are and upright, described side by side
    C              the grid that C is chosen from; empty takes the scale's, or the baseline's
    classifier     the SVM, as in `ClassifierSpec`
    recorded       a method that the project no longer has: what was measured is shown
    """

    name: str
    recipe: dict[str, Any] = field(default_factory=dict)
    paper: tuple[float, ...] = ()
    baseline: str = ""
    quoted: bool = False
    ensemble_size: int = 1
    other_recipes: tuple[dict[str, Any], ...] = ()
    deskew: bool = False
    both_views: bool = False
    C: tuple[float, ...] = ()
    classifier: ClassifierSpec = LINEAR
    recorded: str = ""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The x axis of a curve: the setting that is varied, such as 'inference.steps'."""

    setting: str = ""
    label: str = ""
    scale: Literal["linear", "log"] = "linear"
    values: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says, or a target that we set. Cells are named 'row / column'; * stands for
    each.

    below        of each pair, the first is below the second (a * in both is the same row or column)
    every_epoch  … at every epoch of the training, not only at the last
    lowest       the lowest of all cells is one of these
    at_most      these cells are at most this, in per cent
    within       these cells exceed the paper's number by at most so many points
    scale        evaluated at this scale only
    """

    text: str
    below: tuple[tuple[str, str], ...] = ()
    every_epoch: bool = False
    lowest: tuple[str, ...] = ()
    at_most: dict[str, float] = field(default_factory=dict)
    within: dict[str, float] = field(default_factory=dict)
    scale: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table or curve.

    source      where in the paper: its table, its figure, or its text
    section     … and in which section, which orders the claims; empty for what is not in the paper
    note        for the reader
    headline    measured with several seeds, its models published with the results
    data        the data set; empty takes the scale's
    eval_split  as in DataSpec
    base        a file of recipes/: differences that come before those of the table
    recipe      differences that all rows share
    """

    title: str
    source: str = ""
    section: str = ""
    note: str = ""
    headline: bool = False
    data: str = ""
    eval_split: EvalSplit = "test"
    base: str = ""
    recipe: dict[str, Any] = field(default_factory=dict)
    rows: tuple[Row, ...]
    columns: tuple[Column, ...] = ()
    x: Axis = Axis()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One number of a table at a scale: what is measured, and the paper's number, where it gives
    one."""

    table: str
    row: str
    column: str
    measure: Measure
    paper: float | None
    headline: bool
    jobs: tuple[Job, ...]
    """one for each seed; empty where nothing is run"""

    @property
    def name(self) -> str:
        return f"{self.row} / {self.column}"


def read_table(name: str) -> Table:
    """The table of this name."""
    if name not in ALL_TABLES:
        raise UnknownChoice("table", name, [*ALL_TABLES, "all", "report"])
    file = "paper" if name in TABLES else "best" if name in BEST else "extra"
    return build(Table, data_file("tables", file)[name])


def columns_of(name: str, table: Table, scale: Scale) -> tuple[Column, ...]:
    """The columns; of a curve, one a value on its x axis. None with more labels than the scale has
    images."""
    values = scale.values.get(name, table.x.values)
    columns = table.columns or tuple(
        Column(name=f"{x:g}", recipe=nested(table.x.setting, x)) for x in values
    )
    return tuple(column for column in columns if column.labels < (scale.data.limit or math.inf))


def nested(setting: str, value: float) -> dict[str, Any]:
    """A setting such as 'inference.lam' as a table of differences."""
    # an integer is valid for integer and float settings
    number: Any = int(value) if value == int(value) else value
    return reduce(lambda inner, key: {key: inner}, reversed(setting.split(".")), number)


def cells_of(name: str, scale: Scale, seeds: int = 1) -> list[Cell]:
    """Every cell of a table, row by row, with this many seeds."""
    table = read_table(name)
    data = replace(scale.data, name=table.data or scale.data.name, eval_split=table.eval_split)
    cells = []
    for row in table.rows:
        for i, column in enumerate(columns_of(name, table, scale)):
            paper = row.paper[i] if i < len(row.paper) and not math.isnan(row.paper[i]) else None
            jobs = () if row.quoted else jobs_of(table, row, column, scale, data, seeds)
            cells.append(
                Cell(name, row.name, column.name, column.measure, paper, table.headline, jobs)
            )
    return cells


@cache
def all_cells(scale: Scale) -> dict[str, list[Cell]]:
    """Every cell of every table, with `SEEDS` seeds; it takes a second, so it is done once."""
    return {name: cells_of(name, scale, SEEDS) for name in ALL_TABLES}


def jobs_of(
    table: Table, row: Row, column: Column, scale: Scale, data: DataSpec, seeds: int
) -> tuple[Job, ...]:
    """The jobs of one cell, one for each seed."""
    data = replace(data, deskew=row.deskew, both_views=row.both_views)
    if row.baseline:
        baseline = BASELINES[row.baseline]()
        return (_evaluation(data, baseline, row.C or baseline.C, row, column),)
    if row.recorded:
        return tuple(RecordedJob(data, row.recorded, column.labels, seed) for seed in range(seeds))
    recipe, C = recipe_of(table, row, column, scale), row.C or scale.C
    if row.ensemble_size > 1:  # its seeds are all within one job
        return (_evaluation(data, ModelFeatures(recipe, row.ensemble_size), C, row, column),)
    recipes = [replace(recipe, seed=seed) for seed in range(seeds)]
    if column.measure in TRAINING_MEASURES:
        return tuple(TrainingJob(data, recipe) for recipe in recipes)
    others = [override(recipe, changes) for changes in row.other_recipes]
    together = [
        ModelFeatures(each, other_recipes=tuple(replace(other, seed=each.seed) for other in others))
        for each in recipes
    ]
    return tuple(_evaluation(data, features, C, row, column) for features in together)


def _evaluation(
    data: DataSpec,
    features: ModelFeatures | Baseline,
    C: tuple[float, ...],
    row: Row,
    column: Column,
) -> EvaluationJob | FewLabelJob:
    if column.labels:
        svm = row.classifier
        return FewLabelJob(
            data, features, C, column.labels, svm.dual, svm.whiten_choices or (svm.whiten,)
        )
    return EvaluationJob(data, features, C, row.classifier)


def recipe_of(table: Table, row: Row, column: Column, scale: Scale) -> Recipe:
    """The scale's recipe with the differences of the table, the row and the column."""
    recipe = scale.recipe(*([data_file("recipes", table.base)] if table.base else []), table.recipe)
    for changes in (row.recipe, column.recipe):
        recipe = override(recipe, changes)
    return first_layers(recipe, column.layers) if column.layers else recipe
