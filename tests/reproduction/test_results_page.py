"""RESULTS.md is what the result files say."""

import json
import shutil
from pathlib import Path

import pytest

from whatwhere.errors import RunError
from whatwhere.reproduction import results_page
from whatwhere.reproduction.results_page import as_text, curves, found_in, page, section, summary, write_report
from whatwhere.reproduction.scales import SCALES, read_scale
from whatwhere.reproduction.tables import cells_of

ROOT = Path(__file__).parents[2]


def test_results_md_agrees_with_the_result_files():
    assert (ROOT / "RESULTS.md").read_text(encoding="utf-8") == page(ROOT / "results"), (
        "run `whatwhere reproduce report`"
    )


@pytest.mark.parametrize("scale", SCALES)
def test_figures_agree_with_the_result_files(scale):
    for name, cells in found_in(ROOT / "results" / scale, read_scale(scale)).items():
        content = curves(name, cells)
        path = ROOT / "results" / scale / "figures" / f"{name}.json"
        assert path.is_file() == (content is not None), "run `whatwhere reproduce report`"
        if content is not None:
            assert path.read_text(encoding="utf-8") == as_text(content)
            assert path.with_suffix(".svg").is_file()


def test_the_page_shows_our_numbers_beside_the_paper_s(scale, measured):
    found = [json.loads(path.read_text()) for path in measured.glob("error-*.json")]
    rates = [
        100 * content["found"]["error"]
        for content in found
        if content["subject"]["settings"]["recipe"]["model"]["layers"][0]["pooling_kind"] == "max"
        and len(content["subject"]["settings"]["recipe"]["model"]["layers"]) == 1
    ]
    assert len(rates) == 2
    text = section("pooling", scale, found_in(measured, scale)["pooling"])
    (row,) = [line for line in text.splitlines() if line.startswith("| Max pooling")]
    assert f"**{sum(rates) / 2:.2f}** ± " in row.split("|")[2]
    assert "(2 seeds) (paper 1.30)" in row.split("|")[2]


def test_another_number_in_a_result_file_is_another_page(scale, measured, tmp_path):
    before = section("pooling", scale, found_in(measured, scale)["pooling"])
    copy = shutil.copytree(measured, tmp_path / "copy")
    name = cells_of("pooling", scale)[0].subjects[0].key
    path = copy / f"error-{name}.json"
    content = json.loads(path.read_text())
    content["found"]["error"] += 0.1
    path.write_text(json.dumps(content))
    assert section("pooling", scale, found_in(copy, scale)["pooling"]) != before


def test_what_was_not_run_says_so(scale, measured, tmp_path):
    nothing = found_in(tmp_path / "none", scale)
    assert "not run (paper 1.00)" in section("reset", scale, nothing["reset"])
    claims = summary(scale, nothing).splitlines()[2:]
    assert claims
    assert all("| *not run* |" in claim for claim in claims)
    partly = section("joint", scale, found_in(measured, scale)["joint"])
    assert "not run (paper 1.79)" in partly
    assert "*not run*: One phase of inference beats two" in partly


def test_curves_and_histories_are_those_of_the_result_files(scale, measured):
    found = found_in(measured, scale)
    content = curves("steps", found["steps"])
    assert content["curves"][0]["x"] == [1.0, 2.0]
    assert "std" not in content["curves"][0], "at one step there is one seed alone"
    histories = curves("cost", found["cost"])["histories"]
    assert {name: len(history) for name, history in histories.items()} == {"Max pooling": 2, "Gaussian pooling": 2}
    assert curves("pooling", found["pooling"]) is None


def test_a_folder_without_results_is_refused_and_the_page_left_alone(tmp_path):
    page_file = tmp_path / "RESULTS.md"
    page_file.write_text("as it was")
    with pytest.raises(RunError, match="there are none in it"):
        write_report(tmp_path / "typo", page_file)
    assert page_file.read_text() == "as it was"


def test_the_command_writes_page_curves_and_figures(scale, measured, tmp_path, monkeypatch):
    shutil.copytree(measured, tmp_path / "results" / "tiny")
    monkeypatch.setattr(results_page, "SCALES", ("tiny",))
    monkeypatch.setattr(results_page, "read_scale", lambda name: scale)
    monkeypatch.setitem(results_page.SCALE_NOTES, "tiny", "Tiny.")
    written = write_report(tmp_path / "results", tmp_path / "RESULTS.md")
    assert [path.name for path in written] == ["RESULTS.md", "steps.json", "steps.svg", "cost.json", "cost.svg"]
    assert all(path.stat().st_size > 0 for path in written)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "(results/tiny/figures/steps.svg)" in text
    assert text == page(tmp_path / "results")
