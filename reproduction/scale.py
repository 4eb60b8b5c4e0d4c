"""The scale of a reproduction: which images, how long the training, how many seeds."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from reproduction.jobs import DataSpec
from whatwhere import override
from whatwhere.errors import UnknownChoice
from whatwhere.spec import Recipe, build

HERE = Path(__file__).parent
SCALES = ("paper", "quick")


@dataclass(frozen=True, kw_only=True)
class ScaleFile:
    """What scales/paper.toml and scales/quick.toml hold.

    data    the data set, for tables that name no other
    images  only so many images to learn from, and as many to evaluate on; 0 takes all
    seeds   for the headline tables; the others have one
    C       the grid that C is chosen from, for every cell on validation images
    recipe  differences: paper.toml's from the paper's settings, quick.toml's from paper.toml
    resets  with filters that are updated every epoch: the epochs after which features are set to 0
    values  of curves, by the name of the table: other values on the x axis
    """

    data: str
    seeds: int
    C: tuple[float, ...]
    images: int = 0
    recipe: dict[str, Any] = field(default_factory=dict)
    resets: tuple[int, ...] | None = None
    values: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)  # equal to itself alone, so that it can be a key
class Scale:
    """A scale, ready for use."""

    name: str
    data: DataSpec
    seeds: int
    C: tuple[float, ...]
    values: dict[str, list[float]]
    changes: tuple[dict[str, Any], ...]
    """of the recipe: paper.toml's, then this scale's own"""
    resets: tuple[int, ...] | None = None

    def recipe(self, *table: dict[str, Any]) -> Recipe:
        """The recipe of this scale; the changes of a table come after paper.toml's and before the
        scale's own."""
        first, *own = self.changes
        recipe = Recipe.paper()
        for changes in (first, *table, *own):
            recipe = override(recipe, changes)
        if self.resets is None or recipe.learning[0].streams:
            return recipe
        return override(recipe, {"learning": {"each": {"update": {"reset_at": self.resets}}}})


@cache
def read_scale(name: str) -> Scale:
    """The scale of this name; every other one is given as differences from `paper`."""
    if name not in SCALES:
        raise UnknownChoice("scale", name, SCALES)
    content = [
        build(ScaleFile, data_file("scales", file)) for file in dict.fromkeys(("paper", name))
    ]
    chosen = content[-1]
    changes = tuple(file.recipe for file in content)
    data = DataSpec(chosen.data, limit=chosen.images or None)
    return Scale(name, data, chosen.seeds, chosen.C, chosen.values, changes, chosen.resets)


def data_file(folder: str, name: str) -> dict[str, Any]:
    """A file of recipes/, scales/ or tables/, parsed."""
    return tomllib.loads((HERE / folder / f"{name}.toml").read_text(encoding="utf-8"))
