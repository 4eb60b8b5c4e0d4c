"""Whether the places of features are informative, decided without labels.

For objects in a fixed position the mean of a feature map over all pictures has structure in space;
for textures it is flat. The share of the maps' variance that places explain decides: rows hold what
is at a place, what is anywhere, or both side by side, which is the safe choice in between
(benchmarks/labels/any_folder.py).
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from whatwhere.files import disk_errors, json_fields, write_json
from whatwhere.inference import infer
from whatwhere.inference.target import ImageSource, in_model_units
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, Count, Positive
from whatwhere.spec.recipe import Where

WHERE_FILE = "where.json"  # in the folder of a run
_FORMAT = "whatwhere where 1"


WORDS: dict[Where, str] = {
    "keep": (
        "The rows describe which features lie at which place. For features without places: --set"
        " descriptor.where=forget."
    ),
    "forget": (
        "The rows describe which features a picture has, but not where they lie. For both: --set"
        " descriptor.where=both."
    ),
    "both": (
        "The rows describe which features a picture has and where they lie. For one alone: --set"
        " descriptor.where=forget or keep."
    ),
}
WEIGHED = (
    "The rows describe which features a picture has and, apart from that, where they lie; the"
    " labels weigh both. For one alone: --set descriptor.where=forget or keep."
)


@dataclass(frozen=True)
class WhereSettings(Checked):
    """When places of features are described.

    Parameters
    ----------
    forget
        share of the variance below which only what is anywhere is described
    keep
        share from which on only what is at a place is described
    sample
        images that are looked at
    """

    forget: Positive = 0.05
    keep: Positive = 0.25
    sample: Count = 100


class WhereChoice(NamedTuple):
    """The choice of what rows describe, and the line that reports it."""

    where: Where
    line: str


def place_share(features: Tensor) -> float:
    """Return the share of the variance of feature maps [N, B, H, W] that places explain.

    Chance explains 1/N of it, which is subtracted.
    """
    p = features.double()
    by_map = p - p.mean((0, 2, 3), keepdim=True)
    total = float(by_map.square().mean())
    if total == 0 or len(p) < 2:
        return 0.0
    share = float(by_map.mean(0).square().mean()) / total
    return max(0.0, (share - 1 / len(p)) / (1 - 1 / len(p)))


def choose_where(
    model: DeconvNet,
    images: ImageSource,
    recipe: Recipe,
    engine: str = "auto",
    kept_in: Path | None = None,
) -> WhereChoice:
    """Choose what rows of these images describe: by the recipe, or by the share of the features
    that places explain.

    Parameters
    ----------
    kept_in
        the file of the choice: if it exists, its choice is used
    """
    given = recipe.descriptor.where
    if recipe.descriptor.raw and given == "auto":
        return WhereChoice("keep", "where: keep, because the recipe takes raw features")
    if given != "auto":
        return WhereChoice(given, f"where: {given}, set in the recipe")
    if (kept := read_choice(kept_in)) is not None:
        return kept
    choice = choose_by_share(model, images, recipe, engine)
    if kept_in is not None and os.access(kept_in.parent, os.W_OK):
        with disk_errors(f"writing {kept_in}", "free some disk space"):
            write_json(kept_in, _FORMAT, choice._asdict())
    return choice


def read_choice(file: Path | None) -> WhereChoice | None:
    """Return the choice that a file records; None without a file."""
    if file is None or not file.exists():
        return None
    with json_fields(file, _FORMAT, "choice of what rows describe", "remove it") as kept:
        if kept["where"] not in ("keep", "forget", "both"):
            raise ValueError(f"where is {kept['where']!r}; expected keep, forget or both")
        return WhereChoice(kept["where"], str(kept["line"]))


def choose_by_share(
    model: DeconvNet,
    images: ImageSource,
    recipe: Recipe,
    engine: str,
    settings: WhereSettings | None = None,
) -> WhereChoice:
    """Return the choice by the share of the variance that places explain in some of the images."""
    how = settings or WhereSettings()
    images = in_model_units(model.spec, images)
    if images[0:1].shape[2] == 1:
        return WhereChoice("keep", "Rows describe what is at each time, because these are signals.")
    count = min(len(images), how.sample)
    rows = [len(images) * number // count for number in range(count)]
    sample = torch.cat([images[slice(row, row + 1)] for row in rows])
    v = sample.to(model.device, model.dtype)
    plan = recipe.plan or ()
    found = infer(model, v, recipe.inference, plan, engine=engine, batch_size=len(v))
    share = place_share(found.features)
    where: Where = "both"
    if share < how.forget:
        where = "forget"
    elif share >= how.keep:
        where = "keep"
    return WhereChoice(where, WORDS[where])


def with_choice(recipe: Recipe, choice: WhereChoice) -> Recipe:
    """Return the same recipe with the choice in place of 'auto'."""
    return replace(recipe, descriptor=replace(recipe.descriptor, where=choice.where))
