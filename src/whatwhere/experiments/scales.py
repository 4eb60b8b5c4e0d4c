"""At which scale the paper is reproduced: which images, for how long, with how many seeds."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from whatwhere.errors import SpecError
from whatwhere.experiments.subjects import DataSpec
from whatwhere.spec import Recipe
from whatwhere.spec_toml import amend, build

SCALES = ("paper", "quick")


@dataclass(frozen=True, kw_only=True)
class ScaleFile:
    """What recipes/paper.toml and recipes/quick.toml hold.

    data    the set of images
    images  only so many of them to learn from, and of those to be judged by; 0 takes all
    seeds   for the headline tables; the others have one
    C       the grid that C is chosen from, for every cell on validation images
    recipe  differences: paper.toml's from the paper's settings, quick.toml's from paper.toml
    values  for curves, by the name of the table: other places on the x axis
    """

    data: str
    seeds: int
    C: tuple[float, ...]
    images: int = 0
    recipe: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """A scale, ready for use."""

    name: str
    data: DataSpec
    seeds: int
    C: tuple[float, ...]
    values: dict[str, list[float]]
    changes: tuple[dict[str, Any], ...]
    """of the recipe: paper.toml's, then this scale's own"""

    def recipe(self, table: dict[str, Any] | None = None) -> Recipe:
        """The recipe of this scale; what a table changes stands between paper.toml and the scale's own changes."""
        first, *own = self.changes
        recipe = Recipe.paper()
        for changes in (first, table or {}, *own):
            recipe = amend(recipe, changes)
        return recipe


def read_scale(name: str) -> Scale:
    """The scale of this name; every other one is given as differences from `paper`."""
    if name not in SCALES:
        raise SpecError(f"scale {name!r} was given; expected one of {', '.join(SCALES)}")
    content = [build(ScaleFile, recipe_file(file)) for file in dict.fromkeys(("paper", name))]
    chosen = content[-1]
    changes = tuple(file.recipe for file in content)
    data = DataSpec(chosen.data, limit=chosen.images or None)
    return Scale(name, data, chosen.seeds, chosen.C, chosen.values, changes)


def recipe_file(name: str) -> dict[str, Any]:
    """A file of recipes/, parsed."""
    path = files("whatwhere.experiments") / "recipes" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
