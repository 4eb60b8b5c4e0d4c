"""The command, without its numerics."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whatwhere.reproduction.reproduce as runner
from whatwhere.cli import app
from whatwhere.errors import SpecError
from whatwhere.reproduction.reproduce import Outcome
from whatwhere.reproduction.table import TABLES


@pytest.fixture
def calls(monkeypatch):
    """What the runner was asked for; with a time limit it reports that one cell remains."""
    seen = []

    def record(names, scale, options, log):
        seen.append((names, scale.name, options))
        return Outcome(measured=1, known=0, unavailable=0, remaining=0 if options.minutes is None else 1)

    monkeypatch.setattr(runner, "reproduce", record)
    return seen


def test_all_are_the_tables_of_the_paper_and_quick_is_the_default(calls):
    assert CliRunner().invoke(app, ["reproduce", "all"]).exit_code == 0
    (names, scale, options) = calls[0]
    assert (names, scale) == (list(TABLES), "quick")
    assert options.minutes is None


def test_a_run_out_of_time_says_so_by_its_exit_status(calls, tmp_path):
    arguments = ["reproduce", "pooling", "reset", "--scale", "paper", "--minutes", "5", "--results", str(tmp_path)]
    assert CliRunner().invoke(app, arguments).exit_code == 3
    (names, scale, options) = calls[0]
    assert (names, scale, options.minutes, options.results) == (["pooling", "reset"], "paper", 5.0, tmp_path)


def test_report_writes_the_page_and_runs_nothing(calls, tmp_path):
    page = tmp_path / "RESULTS.md"
    shutil.copytree(Path(__file__).parents[2] / "results" / "quick", tmp_path / "quick")
    done = CliRunner().invoke(app, ["reproduce", "report", "--results", str(tmp_path), "--page", str(page)])
    assert done.exit_code == 0
    assert not calls
    assert "## Scale: paper" in page.read_text(encoding="utf-8")


def test_an_error_names_an_unknown_table(tmp_path):
    done = CliRunner().invoke(app, ["reproduce", "poling", "--results", str(tmp_path)])
    assert isinstance(done.exception, SpecError)
    assert "poling" in str(done.exception)
