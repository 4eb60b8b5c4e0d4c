"""The runner, on a scale so small that every cell takes a fraction of a second."""

import json
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import reproduction.__main__ as program
from raising import raises
from reproduction import report
from reproduction.__main__ import main
from reproduction.models import read_model
from reproduction.reproduce import (
    Outcome,
    Pace,
    ReproduceOptions,
    TimeLimit,
    job_cells,
    open_evaluator,
    reproduce,
)
from reproduction.table import TABLES, cells_of
from whatwhere.errors import InvalidSetting, UnknownChoice


def quiet(line):
    pass


def lines_of(path):
    return {line["name"]: line for line in map(json.loads, path.read_text().splitlines())}


def test_every_cell_gets_a_result_with_every_number(measured):
    lines = lines_of(measured.folder / "results.jsonl")
    assert Counter(name.split("/")[0] for name in lines) == {"models": 8, "pooling": 8, "steps": 1}
    content = lines["pooling/gaussian-pooling-layer-2-seed0"]
    score = content["result"]["score"]
    assert score["error"] == score["errors"] / score["images"]
    assert score["images"] == 30 == sum(map(sum, score["confusion"]))
    low, high = score["interval"]
    assert low <= score["error"] <= high
    assert [trial["C"] for trial in content["result"]["trials"]] == [1.0, 10.0]
    assert score["C"] in (1.0, 10.0)
    assert score["solver"] == "newton", "the same on every machine"
    assert content["machine"]["versions"]["torch"]
    assert content["job"]["features"]["recipe"]["seed"] == 0
    (model,) = content["result"]["models"]
    name = model.removeprefix("models/")
    history = lines[model]["result"]["history"]
    assert {"cost", "reconstruction", "penalty", "nonzeros", "engine"} <= history[-1].keys()
    assert read_model(measured.folder / "models.zip", name) is not None, (
        "models of the headline are published"
    )


def test_what_has_a_result_is_not_measured_again(scale, measured_folder, tmp_path):
    options = ReproduceOptions(
        measured_folder, tmp_path / "no cache", device="cpu", engine="reference"
    )
    again = reproduce(["pooling", "steps", "cost"], scale, options, quiet)
    assert (again.measured, again.remaining) == (0, 0)
    assert again.known == 8 + 1 + 2, (
        "pooling with two seeds, one other value of steps, two trainings"
    )
    assert not (tmp_path / "no cache").exists()


def test_only_some_cells(scale, options):
    wanted = job_cells(["pooling", "steps"], scale, only="Gaussian pooling / Layer")
    assert [cell.name for cell in wanted.values()].count(
        "Gaussian pooling / Layer 2"
    ) == scale.seeds
    assert {cell.name for cell in wanted.values()} == {
        "Gaussian pooling / Layer 1",
        "Gaussian pooling / Layer 2",
    }
    outcome = reproduce(
        ["pooling"], scale, replace(options, only="Gaussian pooling / Layer 1", seeds=1), quiet
    )
    assert (outcome.measured, outcome.remaining) == (1, 0)
    with raises(InvalidSetting, given={"--only": "gaussian"}):
        job_cells(["pooling"], scale, only="gaussian")


def test_out_of_time_it_stops_cleanly_and_the_next_run_continues(scale, options):
    lines = []
    outcome = reproduce(["reset"], scale, replace(options, minutes=0), lines.append)
    assert (outcome.measured, outcome.remaining) == (0, 2)
    assert "out of time with 2 left" in lines[-1]
    assert reproduce(["reset"], scale, options, quiet).remaining == 0


def test_the_headline_comes_first_one_seed_of_each_before_two_of_any(scale):
    order = list(job_cells(["reset", "pooling"], scale).items())
    headline = [(cell.table, job.features.recipe.seed) for job, cell in order[:8]]
    assert headline == [("pooling", 0)] * 4 + [("pooling", 1)] * 4
    assert order[8][1].table == "reset"
    assert len(order) == 9, "the cell with a reset is the headline's"


def test_more_seeds_where_they_are_asked_for(scale):
    (cell,) = [c for c in cells_of("reset", scale, 3) if c.column == "No reset"]
    assert [job.features.recipe.seed for job in cell.jobs] == [0, 1, 2]
    assert len(job_cells(["reset"], scale, seeds=3)) == 6


@pytest.mark.skipif(find_spec("kymatio") is not None, reason="kymatio is installed here")
def test_what_cannot_run_here_is_left_out_with_a_reason(scale, options):
    lines = []
    outcome = reproduce(["comparison"], scale, replace(options, minutes=0), lines.append)
    assert outcome.unavailable == 1, (
        "all labels; this scale has too few images for the other columns"
    )
    assert any("Scattering" in line and "reproduction/README.md" in line for line in lines)


# The command, without its numerics ----------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """What the runner was asked for; with a time limit it reports that one cell remains."""
    seen = []

    def record(names, scale, options, log):
        seen.append((names, scale.name, options))
        return Outcome(
            measured=1, known=0, unavailable=0, remaining=0 if options.minutes is None else 1
        )

    monkeypatch.setattr(program, "reproduce", record)
    return seen


def test_all_are_the_tables_of_the_paper_and_quick_is_the_default(calls):
    assert main(["all"]) == 0
    (names, scale, options) = calls[0]
    assert (names, scale) == (list(TABLES), "quick")
    assert options.minutes is None


def test_a_run_out_of_time_says_so_by_its_exit_status(calls, tmp_path):
    arguments = [
        "pooling",
        "reset",
        "--scale",
        "paper",
        "--minutes",
        "5",
        "--results",
        str(tmp_path),
    ]
    assert main(arguments) == 3
    (names, scale, options) = calls[0]
    assert (names, scale, options.minutes, options.results) == (
        ["pooling", "reset"],
        "paper",
        5.0,
        tmp_path,
    )


def test_report_writes_the_page_and_runs_nothing(calls, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(report, "write_report", lambda *given: (written.append(given), given)[1])
    assert main(["report", "--results", str(tmp_path), "--page", "RESULTS.md"]) == 0
    assert not calls
    assert written == [(tmp_path, Path("RESULTS.md"))]


def test_an_error_names_an_unknown_table(tmp_path):
    with raises(UnknownChoice, kind="table", given="poling"):
        main(["poling", "--results", str(tmp_path)])


def test_the_work_that_is_left_is_that_of_the_jobs_and_their_trainings(scale, measured, options):
    jobs = list(job_cells(["pooling"], scale, seeds=1))
    evaluator = open_evaluator(scale, options, TimeLimit(None), quiet)
    pace = Pace(jobs, evaluator, measured)
    names = [
        f"{table}-seed0"
        for table in (
            "pooling/gaussian-pooling-layer-1",
            "pooling/gaussian-pooling-layer-2",
            "pooling/max-pooling-layer-1",
            "pooling/max-pooling-layer-2",
            "models/gaussian-1layer",
            "models/gaussian-2layers",
            "models/max-1layer",
            "models/max-2layers",
        )
    ]
    known = {record.name: record.seconds for record in measured.records.values()}
    assert pace.total == pytest.approx(sum(known[name] for name in names))
    assert pace.left(4, 10.0) == 0
    assert pace.left(2, 10.0) == pytest.approx(10 * sum(pace.seconds[2:]) / sum(pace.seconds[:2]))
    assert Pace(jobs, evaluator, evaluator.results).left(1, 10.0) == 0, "nothing is known"


def test_again_says_so_where_all_was_measured_again_before(monkeypatch, tmp_path, capsys):
    known = Outcome(measured=0, known=4, unavailable=0, remaining=0)
    monkeypatch.setattr(program, "reproduce", lambda *_: known)
    assert main(["pooling", "--again", "--cache", str(tmp_path)]) == 0
    assert f"Delete {tmp_path / 'again'} to measure again." in capsys.readouterr().out
    assert main(["pooling", "--cache", str(tmp_path)]) == 0
    assert "Delete" not in capsys.readouterr().out


def test_again_measures_into_a_folder_of_its_own(calls, tmp_path, capsys):
    assert main(["pooling", "--again", "--cache", str(tmp_path)]) == 0
    (_, _, options) = calls[0]
    assert options.results == tmp_path / "again" / "results"
    assert options.cache == tmp_path / "again"
    printed = capsys.readouterr().out
    assert "Max pooling against Gaussian pooling (Table 1)" in printed
    assert "not run (paper 0.84)" in printed
