"""The README: its examples run, its links exist, and its error rates are those of the result files."""

import importlib
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from whatwhere import data
from whatwhere.cli import app
from whatwhere.data import load
from whatwhere.reproduction.report import measured_tables
from whatwhere.reproduction.reproduce import open_store
from whatwhere.reproduction.results import mean_and_deviation
from whatwhere.reproduction.scale import read_scale

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert re.fullmatch(r"\w+: \d+ features per image\n", capsys.readouterr().out)
    assert names["X"].shape == (100, 4800)
    assert names["z"].shape == (8, 16, 32, 32)


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands as they are written, one after the other in an empty folder, on the first digits of each split."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    (block,) = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    commands = [shlex.split(line) for line in block.splitlines()]
    assert [command[1] for command in commands] == ["train", "encode", "figures", "classify"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(importlib.import_module("whatwhere.figures.style").RC, "savefig.dpi", 30)  # faster to draw
    monkeypatch.setattr(data, "load", lambda *given, **options: load(*given, **options).subset(np.arange(60)))
    for program, *arguments in commands:
        assert program == "whatwhere"
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert "tested on digits/test (60 images)" in result.output
    assert np.load("codes.npz")["features"].shape == (60, 48, 10, 10)
    assert (tmp_path / "runs/digits/figures/report.html").is_file()


def test_every_link_has_a_target() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", README.read_text(encoding="utf-8"))
    here = [(README.parent / path, place) for path, place in links if "://" not in path]
    assert here
    assert [path for path, _ in here if not path.exists()] == []
    assert [place for path, place in here if place and place not in places(path)] == []


def places(page: Path) -> list[str]:
    """The anchors of a page: its headings in lower case with hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


ONE_CELL = {  # a row of the README, and where its number comes from
    "**Gaussian pooling**": ("pooling", "Gaussian pooling / Layer 2"),
    "its layer 1 alone": ("pooling", "Gaussian pooling / Layer 1"),
    "max pooling": ("pooling", "Max pooling / Layer 2"),
    "layer 1 of max pooling": ("pooling", "Max pooling / Layer 1"),
    "without the reset of the features in training": ("reset", "Gaussian pooling, 2 layers / No reset"),
    "without non-negativity: Gaussian pooling": ("nonnegativity", "Gaussian pooling / Positive/negative"),
    "without non-negativity: max pooling": ("nonnegativity", "Max pooling / Positive/negative"),
}
MANY_LABELS = {
    "Gaussian pooling, two layers": "This model, Gaussian pooling, 2 layers",
    "three of them, of three seeds, side by side": "Three of them side by side (beyond the paper)",
    "baselines, the same SVM: raw pixels": "Raw pixels",
    "k-means on whitened patches": "k-means on whitened patches (Coates and Ng)",
    "scattering": "Scattering (kymatio)",
}


def test_every_error_rate_is_from_its_result_files() -> None:
    lines = [line.strip("|").split("|") for line in README.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    rows = {row.strip(): [cell.strip(" *") for cell in cells] for row, *cells in lines}
    paper = read_scale("paper")
    tables = measured_tables(paper, open_store(README.parent / "results", paper))
    for row, (table, name) in ONE_CELL.items():
        cell = tables[table][name]
        mean, deviation = mean_and_deviation(cell.values)
        expected = [str(len(cell.values)), f"{mean:.2f} ± {deviation:.2f}", f"{cell.cell.paper:.2f}"]
        assert rows[row] == expected, row
    for row, name in MANY_LABELS.items():
        labels = ("all", "3000", "1000", "300", "100")
        assert rows[row] == [f"{tables['comparison'][f'{name} / {n} labels'].mean:.2f}" for n in labels], row
