"""Which settings of a run may change when it is resumed: those of test time, and the number of epochs still to come."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from whatwhere.errors import RunError
from whatwhere.learning.state import TrainingState, first_epoch
from whatwhere.spec import Recipe
from whatwhere.spec.toml import override, parse_toml

MAY_CHANGE = re.compile(r"inference\..*|plan.*|descriptor\..*|learning\.\d+\.epochs")


def training_changes(old: str, new: Recipe) -> str:
    """The settings of training, but for epochs, in which a recipe differs from an earlier one, in words."""
    earlier = override(Recipe.paper(), parse_toml(old, "the checkpoint's recipe"))  # settings added since: defaults
    before, after = settings(asdict(earlier)), settings(asdict(new))
    return difference(*({n: v for n, v in all.items() if not MAY_CHANGE.fullmatch(n)} for all in (before, after)))


def position(state: TrainingState, recipe: Recipe) -> tuple[int, int]:
    """Layer and epoch that come next by this recipe, whose numbers of epochs may have changed.

    A layer that is finished cannot be given other epochs, except the top one: the layers above were trained on it.
    """
    depth = recipe.model.depth
    done = {k: max((r.epoch for r in state.history if r.layer == k), default=0) for k in range(1, depth + 1)}
    current = min(state.layer, depth)
    for k in range(1, current):
        if recipe.learning[k - 1].epochs != done[k]:
            raise RunError(
                f"learning.{k}.epochs = {recipe.learning[k - 1].epochs} was given; expected {done[k]}: layer {k} is "
                f"finished, and the layers above were trained on it (learning.{current}.epochs can be changed)"
            )
    begun = done[current] + (state.batch > 0)
    if recipe.learning[current - 1].epochs < begun:
        raise RunError(
            f"learning.{current}.epochs = {recipe.learning[current - 1].epochs} was given; {begun} are begun already; "
            f"expected at least {begun}"
        )
    return first_epoch(recipe, current, done[current] + 1)


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The settings in which two recipes differ, in words; empty if they are the same."""
    names = sorted(name for name in before | after if before.get(name) != after.get(name))
    return ", ".join(
        f"{name} was {before.get(name, 'not set')} and is now {after.get(name, 'not set')}" for name in names
    )


def settings(value: Any, name: str = "") -> dict[str, Any]:
    """Every setting of a spec as a dict, by its full name; layers by their number."""
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        value = {str(number): item for number, item in enumerate(value, start=1)}
    if not isinstance(value, dict):
        return {name: value}
    named: dict[str, Any] = {}
    for key, item in value.items():
        named |= settings(item, f"{name}.{key}" if name else key)
    return named
