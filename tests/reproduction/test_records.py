"""Result files: what is written is read again, found by its job whatever its name, and never
overwritten."""

import json
import platform
import subprocess
from dataclasses import replace

import pytest
import torch

from benchmarks import machine as machine_file
from benchmarks.machine import machine
from raising import raises
from reproduction.baselines import KMeans, RawPixels, Scattering
from reproduction.few_labels import FewLabels
from reproduction.jobs import (
    DataSpec,
    EvaluationJob,
    FewLabelJob,
    ModelFeatures,
    RecordedJob,
    TrainingJob,
    first_layers,
)
from reproduction.naming import names_of, slug
from reproduction.records import NoResult, OtherFiles, ResultStore, UnknownMethod, parse_job
from reproduction.results import (
    CTrial,
    EpochRecord,
    EvaluationResult,
    FewLabelResult,
    TrainingResult,
    mean_and_deviation,
    value_of,
)
from reproduction.scale import SCALES, read_scale
from reproduction.table import ALL_TABLES, SEEDS, cells_of
from whatwhere.classification.protocol import Score
from whatwhere.spec import EveryEpoch, Recipe
from whatwhere.spec.toml import override

DATA = DataSpec("digits")
RECIPE = Recipe.paper()
TRAINING = TrainingJob(DATA, RECIPE)
EVALUATION = EvaluationJob(DATA, ModelFeatures(RECIPE), (1.0, 10.0))
SCORE = Score(0.01, (0.005, 0.02), 2, 200, (0, 1), ((99, 1), (1, 99)), 1.0, "newton")
HISTORY = (EpochRecord(layer=1, epoch=1, cost=3.0, nonzeros=4.0, seconds=1.5, engine="cpu"),)
TRAINED = TrainingResult(history=HISTORY, training_seconds=1.5)


def store(folder, name="table/row-column-seed0"):
    return ResultStore(folder, lambda job: name)


def evaluated(error=0.01):
    trials = (CTrial(C=1.0, error=0.02),)
    return EvaluationResult(
        score=replace(SCORE, error=error), trials=trials, dimensions=10, density=0.5, models=("m",)
    )


@pytest.mark.parametrize(
    ("job", "result"),
    [
        (TRAINING, TRAINED),
        (EVALUATION, evaluated()),
        (
            FewLabelJob(
                DataSpec("digits", "validation", 50), ModelFeatures(RECIPE, 3), (1.0,), 100
            ),
            FewLabelResult(
                draws=FewLabels(100, (0.1, 0.2), (1.0, 1.0), 0.15, (0.1, 0.2)),
                dimensions=7,
                density=1.0,
            ),
        ),
        (EvaluationJob(DATA, RawPixels(), RawPixels.C), evaluated()),
        (EvaluationJob(DATA, KMeans(seed=3), KMeans.C), evaluated()),
        (EvaluationJob(DATA, Scattering(), Scattering.C), evaluated()),
    ],
)
def test_what_was_written_is_read_again(job, result, tmp_path):
    store(tmp_path).put(job, result, 1.23456)
    record = store(tmp_path).find(job)
    assert (record.job, record.result, record.seconds) == (job, result, 1.235)
    assert record.name == "table/row-column-seed0"
    assert record.machine["versions"]["torch"]
    assert record.machine["processor"]


def test_another_job_is_not_found(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    assert store(tmp_path).find(replace(EVALUATION, C=(2.0,))) is None


def test_a_result_is_found_by_its_job_whatever_its_name(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    edit(tmp_path, lambda content: content.update(name="elsewhere/renamed"))
    assert store(tmp_path).find(EVALUATION).name == "elsewhere/renamed"


def test_two_jobs_of_one_name_have_two_names_and_of_one_job_the_last_counts(tmp_path):
    results = store(tmp_path)
    results.put(EVALUATION, evaluated(), 1.0)
    other = replace(EVALUATION, C=(2.0,))
    assert results.name_of(other) == "table/row-column-seed0-2"
    results.put(other, evaluated(0.3), 1.0)
    results.put(EVALUATION, evaluated(0.2), 1.0)
    again = store(tmp_path)
    assert (again.find(EVALUATION).result.error, again.find(other).result.error) == (0.2, 0.3)
    assert len({record.name for record in again.records.values()}) == 2


def edit(folder, change):
    """Change the one line of the one file."""
    path = folder / "results.jsonl"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content) + "\n")


def test_other_defaults_do_not_orphan_a_training(tmp_path):
    store(tmp_path).put(TRAINING, TRAINED, 1.0)

    def as_if_that_had_been_the_default(content):
        content["job"]["recipe"]["inference"]["pooling_step"] = 1.0

    edit(tmp_path, as_if_that_had_been_the_default)
    assert store(tmp_path).find(TRAINING) is not None


def test_a_setting_that_came_later_does_not_orphan_a_result(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    edit(
        tmp_path, lambda content: content["job"]["features"]["recipe"]["inference"].pop("tolerance")
    )
    assert store(tmp_path).find(EVALUATION) is not None
    edit(
        tmp_path,
        lambda content: content["job"]["features"]["recipe"]["inference"].update(tolerance=0.1),
    )
    assert store(tmp_path).find(EVALUATION) is None


@pytest.mark.parametrize("line", ["{}", "[1]", "not JSON", '{"job": {"kind": "training"}}'])
def test_an_error_names_a_line_that_is_no_result(line, tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write(line)
    with raises(NoResult, line=2):
        store(tmp_path)


def test_a_result_of_other_data_files_is_an_error(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    edit(tmp_path, lambda content: content["job"]["data"]["sha256"].reverse())
    with raises(NoResult) as caught:
        store(tmp_path)
    assert isinstance(caught.value.__cause__, OtherFiles)


def test_an_unknown_method_is_an_error_that_names_it(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    table = json.loads((tmp_path / "results.jsonl").read_text())["job"]
    table["features"] = {"method": "magic"}
    with raises(UnknownMethod, given="magic"):
        parse_job(table)


# The numbers that tables take from results --------------------------------------------------------


def epoch(layer, cost, **more):
    return EpochRecord(
        layer=layer, epoch=1, cost=cost, nonzeros=2.0, seconds=1.0, engine="cpu", **more
    )


def test_a_training_counts_by_the_epochs_of_its_top_layer():
    trained = TrainingResult(
        history=(epoch(1, 9.0), epoch(2, 5.0), epoch(2, 4.0)), training_seconds=2.0
    )
    assert trained.series("cost") == [5.0, 4.0]
    assert value_of(trained, "cost") == 4.0
    assert value_of(trained, "nonzeros") == 2.0


def test_what_was_not_recorded_is_an_error():
    trained = TrainingResult(
        history=(epoch(1, 9.0, penalty=1.0), epoch(1, 8.0)), training_seconds=2.0
    )
    with pytest.raises(ValueError, match="penalty"):
        trained.series("penalty")


def test_few_labels_count_by_the_mean_of_their_draws():
    draws = FewLabels(100, (0.1, 0.3), (1.0, 1.0), 0.2, (0.1, 0.3))
    assert value_of(FewLabelResult(draws=draws, dimensions=1, density=1.0), "error") == 0.2


def test_a_single_value_has_no_deviation():
    assert mean_and_deviation([2.0]) == (2.0, None)
    mean, deviation = mean_and_deviation([1.0, 3.0])
    assert (mean, deviation) == (2.0, pytest.approx(2**0.5))


# Readable names: of cells, of trainings, without clashes ------------------------------------------


@pytest.fixture(scope="module")
def names():
    return names_of(read_scale("paper"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Gaussian pooling, 2 layers", "gaussian-pooling-2-layers"),
        ("ℓ0.5 training, ℓ1 inference", "l0.5-training-l1-inference"),
        ("Updating F₁ and U₁", "updating-f1-and-u1"),
        (
            "unit length per filter, β_U = 1, γ ≤ 100, moments of s²",
            "unit-length-per-filter-beta-u-1-gamma-at-most-100-moments-of-s2",
        ),
        ("3×3 cells, rms", "3x3-cells-rms"),
        ("../../etc/passwd", "etc-passwd"),
    ],
)
def test_slugs(text, expected):
    assert slug(text) == expected


def test_a_shared_result_has_the_name_of_the_first_table(names):
    (cell,) = [c for c in cells_of("joint", names.scale) if c.name == "Updating U₁ / 1 phase"]
    assert names(cell.jobs[0]) == "pooling/gaussian-pooling-layer-2-seed0"


def test_seeds_are_part_of_the_name(names):
    (cell,) = [c for c in cells_of("reset", names.scale, 3) if c.column == "No reset"]
    assert [names(job) for job in cell.jobs] == [
        f"reset/gaussian-pooling-2-layers-no-reset-seed{i}" for i in range(3)
    ]
    (ensemble,) = [
        c
        for c in cells_of("comparison", names.scale)
        if c.name.startswith("Three") and "all" in c.column
    ]
    assert names(ensemble.jobs[0]).endswith("all-labels-seeds0-2")
    (pixels,) = [
        c for c in cells_of("comparison", names.scale) if c.name == "Raw pixels / 300 labels"
    ]
    assert names(pixels.jobs[0]) == "comparison/raw-pixels-300-labels"


@pytest.mark.parametrize(
    ("changes", "depth", "expected"),
    [
        ({}, 2, "gaussian-2layers-seed0"),
        ({}, 1, "gaussian-1layer-seed0"),
        (
            {"seed": 3, "model": {"layers": {"each": {"pooling": "max"}}}},
            2,
            "max-2layers-seed3",
        ),
        ({"model": {"nonnegative": False}}, 2, "gaussian-2layers-signed-seed0"),
        (
            {"learning": {"each": {"update": EveryEpoch(reset_at=[])}}},
            2,
            "gaussian-2layers-no-reset-seed0",
        ),
        (
            {"learning": {"2": {"update_lower_filters": True}}},
            2,
            "gaussian-2layers-update-lower-filters-seed0",
        ),
        (
            {"learning": {"each": {"inference": {"penalty": {"alpha": 1.0}}}}},
            2,
            "gaussian-2layers-alpha-1-seed0",
        ),
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
    names = names_of(read_scale(scale))
    jobs = {
        job for table in ALL_TABLES for c in cells_of(table, names.scale, SEEDS) for job in c.jobs
    }
    features = [job.features for job in jobs if not isinstance(job, TrainingJob | RecordedJob)]
    recipes = [recipe for f in features if isinstance(f, ModelFeatures) for recipe in f.recipes()]
    jobs |= {TrainingJob(names.scale.data, recipe) for recipe in recipes}
    assert len({names(job) for job in jobs}) == len(jobs)


def test_a_record_says_what_it_ran_on(monkeypatch):
    here = machine()
    assert here["python"] == platform.python_version()
    assert torch.__version__.startswith(here["versions"]["torch"])
    assert here["processor"]
    assert json.loads(json.dumps(here)) == here
    monkeypatch.setenv("WHATWHERE_COMMIT", "abc123")
    assert machine()["commit"] == "abc123"
    monkeypatch.delenv("WHATWHERE_COMMIT")
    monkeypatch.setenv("PATH", "")
    assert machine()["commit"] is None, "without git"


def test_uncommitted_changes_are_identified(monkeypatch, tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    file = tmp_path / "file"
    file.write_text("one")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *author, "commit", "-qm", "one"], cwd=tmp_path, check=True)
    monkeypatch.setattr(machine_file, "__file__", str(tmp_path / "machine.py"))
    assert machine_file.changes() is None
    assert "dirty" not in str(machine_file.commit())
    file.write_text("two")
    first = machine_file.changes()
    assert first is not None
    assert str(machine_file.commit()).endswith("-dirty")
    file.write_text("three")
    assert machine_file.changes() not in (None, first)
    file.write_text("two")
    assert machine_file.changes() == first
