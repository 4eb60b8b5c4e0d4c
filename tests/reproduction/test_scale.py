"""Scales: every setting stated once, and the recipe of the paper's scale."""

from dataclasses import asdict, replace

import pytest

from reproduction.scale import data_file, read_scale
from whatwhere.spec import MomentFit, Recipe


def test_the_paper_s_scale_changes_the_size_of_mini_batches_alone():
    assert read_scale("paper").recipe() == replace(Recipe.paper(), batch_size=6000)


def test_the_defaults_are_what_was_chosen_on_validation_images():
    """As RESULTS.md's table of choices has it, and as the notes in spec.py and paper.toml say."""
    recipe = read_scale("paper").recipe()
    assert recipe.model.normalise == "plane"
    for spec in (recipe.inference, *(learning.inference for learning in recipe.learning)):
        assert (spec.pooling_step, spec.moments) == (3.0, MomentFit())
    assert (recipe.descriptor.cell, recipe.descriptor.cell_statistic) == (3, "rms")


def leaves(table, path=()):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


@pytest.mark.parametrize("name", ["paper", "quick"])
def test_a_scale_repeats_no_default(name):
    base = asdict(Recipe.paper() if name == "paper" else read_scale("paper").recipe())
    for path, value in leaves(data_file("scales", name)["recipe"]):
        default = base
        for key in path:
            items = {"each": 0} if isinstance(default, tuple) else {}
            default = default[items.get(key, key)]
        assert value != default, f"{name}.toml repeats {'.'.join(path)}"


def test_what_a_table_changes_comes_before_what_the_scale_changes():
    quick = read_scale("quick")
    recipe = quick.recipe({"batch_size": 7, "seed": 4, "learning": {"each": {"cg_steps": 3}}})
    assert recipe.batch_size == 500, "the scale's own"
    assert recipe.seed == 4
    assert [learning.cg_steps for learning in recipe.learning] == [3, 3]
