"""Result files: what is written is read again, found by its job whatever its name, and never overwritten."""

import json
import os
from dataclasses import replace

import pytest

from reproduction.baselines import KMeans, RawPixels, Scattering
from reproduction.few_labels import FewLabels
from reproduction.jobs import DataSpec, EvaluationJob, FewLabelJob, ModelFeatures, TrainingJob
from reproduction.records import ResultStore, parse_job
from reproduction.results import (
    CTrial,
    EpochRecord,
    EvaluationResult,
    FewLabelResult,
    TrainingResult,
)
from whatwhere.classification.protocol import Score
from whatwhere.errors import RunError
from whatwhere.spec import Recipe

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
    return EvaluationResult(score=replace(SCORE, error=error), trials=trials, dimensions=10, density=0.5, models=("m",))


@pytest.mark.parametrize(
    ("job", "result"),
    [
        (TRAINING, TRAINED),
        (EVALUATION, evaluated()),
        (
            FewLabelJob(DataSpec("digits", "validation", 50), ModelFeatures(RECIPE, 3), (1.0,), 100),
            FewLabelResult(draws=FewLabels(100, (0.1, 0.2), (1.0, 1.0), 0.15, (0.1, 0.2)), dimensions=7, density=1.0),
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


def test_a_result_is_found_by_its_job_whatever_its_name_and_file(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    edit(tmp_path, lambda content: content.update(name="renamed"))
    os.rename(tmp_path / "table.jsonl", tmp_path / "elsewhere.jsonl")
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
    path = folder / "table.jsonl"
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
    edit(tmp_path, lambda content: content["job"]["features"]["recipe"]["inference"].pop("tolerance"))
    assert store(tmp_path).find(EVALUATION) is not None
    edit(tmp_path, lambda content: content["job"]["features"]["recipe"]["inference"].update(tolerance=0.1))
    assert store(tmp_path).find(EVALUATION) is None


@pytest.mark.parametrize("line", ["{}", "[1]", "not JSON", '{"job": {"kind": "training"}}'])
def test_an_error_names_a_line_that_is_no_result(line, tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    with (tmp_path / "table.jsonl").open("a") as file:
        file.write(line)
    with pytest.raises(RunError, match=r"table\.jsonl, line 2 is not a result"):
        store(tmp_path)


def test_a_result_of_other_data_files_is_an_error(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    edit(tmp_path, lambda content: content["job"]["data"]["sha256"].reverse())
    with pytest.raises(RunError, match="measured on other files"):
        store(tmp_path)


def test_an_unknown_method_is_an_error_that_names_it(tmp_path):
    store(tmp_path).put(EVALUATION, evaluated(), 1.0)
    table = json.loads((tmp_path / "table.jsonl").read_text())["job"]
    table["features"] = {"method": "magic"}
    with pytest.raises(RunError, match="method 'magic' was given; expected 'model' or one of raw pixels"):
        parse_job(table)
