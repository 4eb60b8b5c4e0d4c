"""The command, without its numerics."""

import shutil
from pathlib import Path

import pytest

import reproduction.__main__ as program
from reproduction.__main__ import main
from reproduction.reproduce import Outcome
from reproduction.table import TABLES
from whatwhere.errors import SpecError


@pytest.fixture
def calls(monkeypatch):
    """What the runner was asked for; with a time limit it reports that one cell remains."""
    seen = []

    def record(names, scale, options, log):
        seen.append((names, scale.name, options))
        return Outcome(measured=1, known=0, unavailable=0, remaining=0 if options.minutes is None else 1)

    monkeypatch.setattr(program, "reproduce", record)
    return seen


def test_all_are_the_tables_of_the_paper_and_quick_is_the_default(calls):
    assert main(["all"]) == 0
    (names, scale, options) = calls[0]
    assert (names, scale) == (list(TABLES), "quick")
    assert options.minutes is None


def test_a_run_out_of_time_says_so_by_its_exit_status(calls, tmp_path):
    arguments = ["pooling", "reset", "--scale", "paper", "--minutes", "5", "--results", str(tmp_path)]
    assert main(arguments) == 3
    (names, scale, options) = calls[0]
    assert (names, scale, options.minutes, options.results) == (["pooling", "reset"], "paper", 5.0, tmp_path)


def test_report_writes_the_page_and_runs_nothing(calls, tmp_path):
    page = tmp_path / "RESULTS.md"
    shutil.copytree(Path(__file__).parents[2] / "reproduction" / "results" / "quick", tmp_path / "quick")
    assert main(["report", "--results", str(tmp_path), "--page", str(page)]) == 0
    assert not calls
    assert "## Scale: paper" in page.read_text(encoding="utf-8")


def test_an_error_names_an_unknown_table(tmp_path):
    with pytest.raises(SpecError, match="poling"):
        main(["poling", "--results", str(tmp_path)])
