"""Readable names: of cells, of trainings, without clashes."""

from dataclasses import replace

import pytest

from reproduction.baselines import RawPixels
from reproduction.jobs import DataSpec, EvaluationJob, ModelFeatures, RecordedJob, TrainingJob, first_layers
from reproduction.naming import Names, slug
from reproduction.scale import SCALES, read_scale
from reproduction.table import ALL_TABLES, SEEDS, cells_of
from whatwhere.spec import EveryEpoch
from whatwhere.spec.toml import override


@pytest.fixture(scope="module")
def names():
    return Names(read_scale("paper"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Gaussian pooling, 2 layers", "gaussian-pooling-2-layers"),
        ("ℓ0.5 training, ℓ1 inference", "l0.5-training-l1-inference"),
        ("Updating F₁ and U₁", "updating-f1-and-u1"),
        ("unit length per filter, β_U = 1, γ ≤ 100, moments of s²",
         "unit-length-per-filter-beta-u-1-gamma-at-most-100-moments-of-s2"),
        ("3×3 cells, rms", "3x3-cells-rms"),
        ("../../etc/passwd", "etc-passwd"),
    ],
)  # fmt: skip
def test_slugs(text, expected):
    assert slug(text) == expected


def test_a_shared_result_has_the_name_of_the_first_table(names):
    (cell,) = [c for c in cells_of("joint", names.scale) if c.name == "Updating U₁ / 1 phase"]
    assert names(cell.jobs[0]) == "pooling/gaussian-pooling-layer-2-seed0"


def test_seeds_are_part_of_the_name(names):
    (cell,) = [c for c in cells_of("reset", names.scale, 3) if c.column == "No reset"]
    assert [names(job) for job in cell.jobs] == [f"reset/gaussian-pooling-2-layers-no-reset-seed{i}" for i in range(3)]
    (ensemble,) = [c for c in cells_of("comparison", names.scale) if c.name.startswith("Three") and "all" in c.column]
    assert names(ensemble.jobs[0]).endswith("all-labels-seeds0-2")
    (pixels,) = [c for c in cells_of("comparison", names.scale) if c.name == "Raw pixels / 300 labels"]
    assert names(pixels.jobs[0]) == "comparison/raw-pixels-300-labels"


@pytest.mark.parametrize(
    ("changes", "depth", "expected"),
    [
        ({}, 2, "gaussian-2layers-seed0"),
        ({}, 1, "gaussian-1layer-seed0"),
        ({"seed": 3, "model": {"layers": {"each": {"pooling_kind": "max"}}}}, 2, "max-2layers-seed3"),
        ({"model": {"nonnegative": False}}, 2, "gaussian-2layers-signed-seed0"),
        ({"learning": {"each": {"update": EveryEpoch(reset_at=[])}}}, 2, "gaussian-2layers-no-reset-seed0"),
        ({"learning": {"2": {"update_lower_filters": True}}}, 2, "gaussian-2layers-update-lower-filters-seed0"),
        ({"learning": {"each": {"inference": {"alpha": 1.0}}}}, 2, "gaussian-2layers-alpha-1-seed0"),
        ({"inference": {"steps": 7}}, 2, "gaussian-2layers-seed0"),  # not a part of the training
    ],
)
def test_a_training_is_named_by_what_its_recipe_changes(changes, depth, expected, names):
    recipe = first_layers(override(names.scale.recipe(), changes), depth)
    assert names(TrainingJob(names.scale.data, recipe)) == f"models/{expected}"


def test_another_data_set_is_part_of_the_name(names):
    recipe = names.scale.recipe()
    fashion = replace(names.scale.data, name="fashion-mnist")
    assert names(TrainingJob(fashion, recipe)) == "models/fashion-mnist-gaussian-2layers-seed0"
    validation = replace(names.scale.data, eval_split="validation")
    assert names(TrainingJob(validation, recipe)) == "models/gaussian-2layers-validation-seed0"


def test_what_no_table_asks_for_has_a_name_too(names):
    recipe = override(names.scale.recipe(), {"inference": {"steps": 7}})
    job = EvaluationJob(names.scale.data, ModelFeatures(recipe), (1.0,))
    assert names(job) == "other/gaussian-2layers-steps-7-seed0"
    assert names(EvaluationJob(DataSpec("digits"), RawPixels(), (1.0,))) == "other/raw-pixels"


@pytest.mark.parametrize("scale", SCALES)
def test_no_two_jobs_of_the_tables_share_a_name(scale):
    names = Names(read_scale(scale))
    jobs = {job for table in ALL_TABLES for c in cells_of(table, names.scale, SEEDS) for job in c.jobs}
    features = [job.features for job in jobs if not isinstance(job, TrainingJob | RecordedJob)]
    recipes = [recipe for f in features if isinstance(f, ModelFeatures) for recipe in f.recipes()]
    jobs |= {TrainingJob(names.scale.data, recipe) for recipe in recipes}
    assert len({names(job) for job in jobs}) == len(jobs)
