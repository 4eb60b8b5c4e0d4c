"""RESULTS.md and the curves are what the result files say."""

import json
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest
from safetensors import safe_open

from reproduction import report
from reproduction.jobs import TrainingJob
from reproduction.report import (
    curves,
    measured_tables,
    open_scales,
    results_page,
    section,
    summary,
    write_report,
)
from reproduction.reproduce import job_cells, open_store
from reproduction.table import ALL_TABLES, TABLES
from whatwhere.errors import RunError
from whatwhere.model import load
from whatwhere.model.files import FORMAT

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def published():
    return open_scales(ROOT / "reproduction/results")


def test_results_md_agrees_with_the_result_files(published):
    assert (ROOT / "RESULTS.md").read_text(encoding="utf-8") == results_page(published), (
        "run `python -m reproduction report`"
    )


def test_everything_is_measured(published):
    """Every job of the tables is found in the result files: another form of a setting would orphan them."""
    for scale, store in published:
        tables = ALL_TABLES if scale.name == "paper" else TABLES
        assert [cell.name for job, cell in job_cells(tables, scale).items() if store.find(job) is None] == []


def test_every_published_result_has_the_name_that_the_program_gives(published):
    for _, store in published:
        for job, record in store.records.items():
            assert record.name == store.names(job)


def test_every_curve_is_drawn(published):
    for scale, store in published:
        names = [name for name, cells in measured_tables(scale, store).items() if curves(name, cells) is not None]
        drawn = sorted(path.stem for path in (store.folder / "figures").iterdir())
        assert drawn == sorted(names), "run `python -m reproduction report`"


def test_the_page_shows_our_numbers_and_the_paper_s(scale, measured):
    lines = map(json.loads, (measured.folder / "results.jsonl").read_text().splitlines())
    names = ("pooling/max-pooling-layer-1-seed0", "pooling/max-pooling-layer-1-seed1")
    rates = [100 * line["result"]["score"]["error"] for line in lines if line["name"] in names]
    text = section("pooling", scale, measured_tables(scale, measured)["pooling"])
    (row,) = [line for line in text.splitlines() if line.startswith("| Max pooling")]
    assert f"**{sum(rates) / 2:.2f}** ± " in row.split("|")[2]
    assert "(2 seeds) (paper 1.30)" in row.split("|")[2]


def test_another_number_in_a_result_file_is_another_page(scale, measured, tmp_path):
    before = section("pooling", scale, measured_tables(scale, measured)["pooling"])
    copy = shutil.copytree(measured.folder, tmp_path / "tiny")
    contents = list(map(json.loads, (copy / "results.jsonl").read_text().splitlines()))
    next(c for c in contents if c["name"].startswith("pooling/"))["result"]["score"]["error"] += 0.1
    (copy / "results.jsonl").write_text("\n".join(map(json.dumps, contents)))
    changed = open_store(tmp_path, scale)
    assert section("pooling", scale, measured_tables(scale, changed)["pooling"]) != before


def test_what_was_not_run_says_so(scale, measured, tmp_path):
    nothing_run = measured_tables(scale, open_store(tmp_path, scale))
    assert "not run (paper 1.00)" in section("reset", scale, nothing_run["reset"])
    claims = summary(scale, nothing_run).splitlines()[2:]
    assert claims
    assert all("| *not run* |" in claim for claim in claims)
    partly = section("joint", scale, measured_tables(scale, measured)["joint"])
    assert "not run (paper 1.79)" in partly
    assert "*not run*: One phase of inference beats two" in partly


def test_curves_and_histories_are_those_of_the_result_files(scale, measured):
    tables = measured_tables(scale, measured)
    content = curves("steps", tables["steps"])
    assert content["curves"][0]["x"] == [1.0, 2.0]
    assert "std" not in content["curves"][0], "at one step there is one seed alone"
    histories = curves("cost", tables["cost"])["histories"]
    assert {name: len(history) for name, history in histories.items()} == {"Max pooling": 2, "Gaussian pooling": 2}
    assert curves("pooling", tables["pooling"]) is None


def test_a_folder_without_results_is_an_error_and_the_page_stays(tmp_path):
    page_file = tmp_path / "RESULTS.md"
    page_file.write_text("as it was")
    with pytest.raises(RunError, match="there are none in it"):
        write_report(tmp_path / "typo", page_file)
    assert page_file.read_text() == "as it was"


def test_the_command_writes_the_page_and_the_figures(scale, measured_folder, tmp_path, monkeypatch):
    results = shutil.copytree(measured_folder, tmp_path / "results")
    monkeypatch.setattr(report, "SCALES", ("tiny",))
    monkeypatch.setattr(report, "read_scale", lambda name: scale)
    monkeypatch.setitem(report.SCALE_NOTES, "tiny", "Tiny.")
    written = write_report(results, tmp_path / "RESULTS.md")
    names = ["RESULTS.md", "steps.svg", "cost.svg"]
    assert [path.name for path in written] == names
    assert all(path.stat().st_size > 0 for path in written)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "(reproduction/results/tiny/figures/steps.svg)" in text
    assert text == results_page(open_scales(results))


def test_every_published_model_loads_and_is_the_one_of_its_record(published, tmp_path):
    for _, store in published:
        trained = {record.name: job for job, record in store.records.items() if isinstance(job, TrainingJob)}
        with ZipFile(store.folder / "models.zip") as archive:
            archive.extractall(tmp_path / store.folder.name)
        files = sorted((tmp_path / store.folder.name).iterdir())
        assert files
        for file in files:
            with safe_open(file, framework="pt") as content:
                assert content.metadata()["format"] == FORMAT, "saved with a checksum"
            assert load(file).spec == trained[f"models/{file.stem}"].recipe.model
