"""RESULTS.md, the index and the curves are what the result files say."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

from reproduction import report
from reproduction.index import index_page
from reproduction.jobs import TrainingJob
from reproduction.naming import Names
from reproduction.records import ResultStore
from reproduction.report import (
    as_text,
    curves,
    measured_tables,
    open_scales,
    results_page,
    section,
    summary,
    write_report,
)
from reproduction.reproduce import open_store
from reproduction.table import cells_of
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


def test_the_index_agrees_with_the_result_files(published):
    assert (ROOT / "reproduction/results/README.md").read_text(encoding="utf-8") == index_page(published), (
        "run `python -m reproduction report`"
    )


def test_every_published_result_has_the_name_that_the_program_gives(published):
    for _, store in published:
        for job, record in store.records.items():
            assert record.name == store.names(job)


def test_figures_agree_with_the_result_files(published):
    for scale, store in published:
        for name, cells in measured_tables(scale, store).items():
            content = curves(name, cells)
            path = store.folder / "figures" / f"{name}.json"
            assert path.is_file() == (content is not None), "run `python -m reproduction report`"
            if content is not None:
                assert path.read_text(encoding="utf-8") == as_text(content)
                assert path.with_suffix(".svg").is_file()


def test_the_page_shows_our_numbers_and_the_paper_s(scale, measured):
    names = [f"pooling/max-pooling-layer-1-seed{seed}.json" for seed in (0, 1)]
    contents = [json.loads((measured.folder / name).read_text()) for name in names]
    rates = [100 * content["result"]["score"]["error"] for content in contents]
    text = section("pooling", scale, measured_tables(scale, measured)["pooling"])
    (row,) = [line for line in text.splitlines() if line.startswith("| Max pooling")]
    assert f"**{sum(rates) / 2:.2f}** ± " in row.split("|")[2]
    assert "(2 seeds) (paper 1.30)" in row.split("|")[2]


def test_another_number_in_a_result_file_is_another_page(scale, measured, tmp_path):
    before = section("pooling", scale, measured_tables(scale, measured)["pooling"])
    copy = shutil.copytree(measured.folder, tmp_path / "tiny")
    path = copy / f"{measured.name_of(cells_of('pooling', scale)[0].jobs[0])}.json"
    content = json.loads(path.read_text())
    content["result"]["score"]["error"] += 0.1
    path.write_text(json.dumps(content))
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


def test_the_command_writes_page_index_curves_and_figures(scale, measured_folder, tmp_path, monkeypatch):
    results = shutil.copytree(measured_folder, tmp_path / "results")
    monkeypatch.setattr(report, "SCALES", ("tiny",))
    monkeypatch.setattr(report, "read_scale", lambda name: scale)
    monkeypatch.setitem(report.SCALE_NOTES, "tiny", "Tiny.")
    written = write_report(results, tmp_path / "RESULTS.md")
    names = ["RESULTS.md", "README.md", "steps.json", "steps.svg", "cost.json", "cost.svg"]
    assert [path.name for path in written] == names
    assert all(path.stat().st_size > 0 for path in written)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "(reproduction/results/tiny/figures/steps.svg)" in text
    assert text == results_page(open_scales(results))


def test_every_link_of_the_index_leads_to_a_file(scale, measured):
    page = index_page([(scale, measured)])
    links = [part.split(")")[0] for part in page.split("](tiny/")[1:]]
    files = {str(path.relative_to(measured.folder)) for path in measured.folder.glob("*/*") if path.suffix != ".svg"}
    assert set(links) == files, "every result file and every published model, and nothing else"


def test_results_that_no_table_asks_for_are_in_the_index(scale, measured, tmp_path):
    store = ResultStore(tmp_path, Names(scale))
    (job, *_) = (job for cell in cells_of("pooling", scale) for job in cell.jobs)
    result = measured.find(job).result
    store.names = lambda job: "other/something"
    store.put(job, result, 1.0)
    assert "- other/something: [seed 0: " in index_page([(scale, store)])


def test_a_page_that_cannot_be_written_is_a_clear_error(measured_folder, tmp_path, monkeypatch, scale):
    results = shutil.copytree(measured_folder, tmp_path / "results")
    monkeypatch.setattr(report, "SCALES", ("tiny",))
    monkeypatch.setattr(report, "read_scale", lambda name: scale)
    monkeypatch.setitem(report.SCALE_NOTES, "tiny", "Tiny.")
    with pytest.raises(RunError, match="writing the report failed"):
        write_report(results, tmp_path / "no such folder" / "RESULTS.md")


def test_every_published_model_loads_and_is_the_one_of_its_record(published):
    for _, store in published:
        files = sorted(store.folder.rglob("*.safetensors"))
        assert files
        trained = {record.name: job for job, record in store.records.items() if isinstance(job, TrainingJob)}
        for file in files:
            with safe_open(file, framework="pt") as content:
                assert content.metadata()["format"] == FORMAT, "saved with a checksum"
            job = trained[file.relative_to(store.folder).with_suffix("").as_posix()]
            assert load(file).spec == job.recipe.model
