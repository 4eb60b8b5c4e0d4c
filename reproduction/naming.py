"""Readable names for results.

    pooling/gaussian-pooling-layer-2-seed0      a cell: table, row, column, seed
    models/gaussian-2layers-seed0               a training: what its recipe changes from the scale's

A result that several tables share is named after the first one. Names are for people; results are
found by their jobs.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import asdict
from functools import cache
from typing import Any

from reproduction.jobs import (
    DataSpec,
    Job,
    ModelFeatures,
    RecordedJob,
    TrainingJob,
    first_layers,
    seeds_of,
)
from reproduction.records import MODELS
from reproduction.scale import Scale
from reproduction.table import all_cells
from whatwhere.spec import InferenceSpec, LearningSpec, Recipe

OTHER = "other"  # folder of results that no table asks for
WORDS = {("nonnegative", False): "signed", ("reset_at", ()): "no-reset"}
SPELLED = str.maketrans({"β": "beta", "γ": "gamma", "λ": "lambda", "≤": "at most ", "×": "x"})


@cache
def names_of(scale: Scale) -> Names:
    """The names of a scale's results: they are made of all cells of all tables."""
    return Names(scale)


class Names:
    """The names of a scale's results."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.cells: dict[Job, str] = {}
        for table, cells in all_cells(scale).items():
            for cell in cells:
                for job in cell.jobs:
                    self.cells.setdefault(
                        job, f"{table}/{slug(cell.row)}-{slug(cell.column)}{seed_suffix(job)}"
                    )

    def __call__(self, job: Job) -> str:
        if isinstance(job, TrainingJob):
            base = TrainingJob(job.data, self.scale.recipe()).recipe
            return f"{MODELS}/{self.recipe_name(job.recipe, base, job.data)}{seed_suffix(job)}"
        if (name := self.cells.get(job)) is not None:
            return name
        if isinstance(job, RecordedJob):
            return f"{OTHER}/{slug(job.method)}-{job.labels or 'all'}-labels{seed_suffix(job)}"
        features = job.features
        if isinstance(features, ModelFeatures):
            name = self.recipe_name(features.recipe, self.scale.recipe(), job.data)
        else:
            name = slug(features.name)
        return f"{OTHER}/{name}{seed_suffix(job)}"

    def recipe_name(self, recipe: Recipe, base: Recipe, data: DataSpec) -> str:
        """The kind of pooling, the number of layers, and what else differs from the base and from
        the scale's data."""
        kinds = dict.fromkeys(layer.pooling.kind for layer in recipe.model.layers)
        depth = recipe.model.depth
        parts = ["-".join(kinds), f"{depth}layer{'s' if depth > 1 else ''}"]
        base = first_layers(base, min(depth, base.model.depth))
        parts += dict.fromkeys(
            setting_slug(*change)
            for change in changes(named_settings(recipe), named_settings(base))
        )
        if data.name != self.scale.data.name:
            parts.insert(0, slug(data.name))
        if data.deskew or data.both_views:
            parts.append("upright" if data.deskew else "both-views")
        if data.eval_split != "test":
            parts.append(data.eval_split)
        return "-".join(parts)


def named_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings that a name may have, each choice by one word, in the order that the published
    names have."""

    def named_inference(spec: InferenceSpec) -> dict[str, Any]:
        table = asdict(spec)
        step, moments = table.pop("step"), table.pop("moments")
        power = {"moment_power": moments.pop("power")}
        return {
            **table,
            "step_size": step.get("per", step["kind"]),
            "momentum": spec.momentum,
            **moments,
            **power,
        }

    def named_learning(spec: LearningSpec) -> dict[str, Any]:
        first = {
            "inference": named_inference(spec.inference),
            "update": spec.update.kind,
            "epochs": spec.epochs,
        }
        return (
            first
            | {"reset_at": spec.reset_at, "split_until": spec.split_until}
            | {key: value for key, value in vars(spec).items() if key not in first}
        )

    learning = tuple(map(named_learning, recipe.learning))
    return {**asdict(recipe), "learning": learning, "inference": named_inference(recipe.inference)}


def changes(table: Any, base: Any, path: str = "") -> list[tuple[str, Any]]:
    """The settings, by their own name, that differ from those of another table of settings."""
    if isinstance(table, dict) and isinstance(base, dict):
        pairs = [
            (key, table[key], base.get(key)) for key in table if key not in ("seed", "pooling")
        ]
        return [change for key, value, other in pairs for change in changes(value, other, key)]
    if (
        isinstance(table, tuple)
        and isinstance(base, tuple)
        and table
        and isinstance(table[0], dict)
    ):
        # a layer above the base's is compared with its top one
        padded = (*base, *(base[-1:] or ({},)) * len(table))
        return [
            change
            for value, other in zip(table, padded, strict=False)
            for change in changes(value, other, path)
        ]
    return [] if table == base else [(path, table)]


def setting_slug(name: str, value: Any) -> str:
    """A setting as a part of a name: 'alpha-1', 'update-lower-filters', 'no-update-lower-pooling',
    'no-reset'."""
    if (word := WORDS.get((name, value))) is not None:
        return word
    if value is True:
        return slug(name)
    if value is False or value is None or value == ():
        return f"no-{slug(name)}"
    values = value if isinstance(value, tuple) else (value,)
    return slug(" ".join([name, *(f"{v:g}" if isinstance(v, float) else str(v) for v in values)]))


def seed_suffix(job: Job) -> str:
    """'-seed0'; '-seeds0-2' where models of several seeds are used side by side; nothing for a
    baseline."""
    seeds = seeds_of(job)
    if not seeds:
        return ""
    return f"-seed{seeds[0]}" if len(seeds) == 1 else f"-seeds{seeds[0]}-{seeds[-1]}"


def slug(text: str) -> str:
    """A readable file name: lower case, words joined by '-', Greek letters spelled."""
    plain = unicodedata.normalize("NFKC", text.translate(SPELLED)).lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")
