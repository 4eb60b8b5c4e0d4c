"""What a result is about: the images and every setting that determine it, and the key made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from whatwhere import data
from whatwhere.data import Images
from whatwhere.data.catalogue import find
from whatwhere.data.splits import train_validation
from whatwhere.spec import DescriptorSpec, InferenceSpec, Recipe
from whatwhere.spec_toml import build

Kind = Literal["model", "error", "few labels"]


@dataclass(frozen=True)
class DataSpec:
    """Images to learn from and images to be judged by.

    name   of a set in the catalogue
    eval_split  by its 'test' images, or by 'validation' images: the last sixth of the training images, which are then
           not learned from
    limit  only so many of each; None takes all
    """

    name: str
    eval_split: Literal["test", "validation"] = "test"
    limit: int | None = None

    def load(self) -> tuple[Images, Images]:
        """Training images, and those to be judged by."""
        training = data.load(self.name)
        sets = (
            (training, data.load(self.name, split="test")) if self.eval_split == "test" else train_validation(training)
        )
        if self.limit is None:
            return sets
        first, second = (images.subset(np.arange(min(self.limit, len(images)))) for images in sets)
        return first, second

    def checksums(self) -> list[str]:
        """Of the files of the set: they tell its images and labels from any others."""
        return [file.sha256 for file in find(self.name).files]


@dataclass(frozen=True, eq=False)
class Subject:
    """What one result file is about; two with the same key are the same.

    kind      'model' (a training), 'error' (all labels), 'few labels'
    settings  plain values: the `recipe`, or the `baseline` that stands in its place; `C`, the grid; `labels`, how many;
              `ensemble_size`, the models of how many seeds, from the recipe's on, are side by side
    """

    kind: Kind
    data: DataSpec
    settings: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subject) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def key(self) -> str:
        """The same for the same subject, whatever the order of its settings."""
        content = [self.kind, asdict(self.data), self.data.checksums(), self.settings]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def recipe(self) -> Recipe:
        return build(Recipe, self.settings["recipe"])

    def table(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {
            "kind": self.kind,
            "data": {**asdict(self.data), "sha256": self.data.checksums()},
            "settings": dict(self.settings),
        }

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Subject:
        """From a file: its recipe is read by today's spec, so that a setting added since has its default."""
        settings = dict(table["settings"])
        data = DataSpec(**{name: table["data"][name] for name in ("name", "eval_split", "limit")})
        if "recipe" in settings:
            recipe = build(Recipe, settings["recipe"])
            if table["kind"] == "model":
                return model_subject(recipe, data)
            settings["recipe"] = plain(recipe)
        return cls(table["kind"], data, settings)


def plain(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain values: tables, lists, numbers, words."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(recipe)))
    return values


def model_subject(recipe: Recipe, data: DataSpec) -> Subject:
    """The training that a recipe asks for; how its model is used afterwards is left out."""
    training = replace(recipe, inference=InferenceSpec(), plan=(), descriptor=DescriptorSpec())
    return Subject("model", data, {"recipe": plain(training)})


def first_layers(recipe: Recipe, count: int) -> Recipe:
    """The recipe that ends with layer `count`."""
    return replace(
        recipe,
        model=replace(recipe.model, layers=recipe.model.layers[:count]),
        learning=recipe.learning[:count],
        plan=tuple(phase for phase in recipe.plan if phase.layer <= count),
        descriptor=replace(recipe.descriptor, layers=tuple(k for k in recipe.descriptor.layers if k <= count)),
    )
