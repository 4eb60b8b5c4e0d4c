"""What the README shows runs as it stands, what it points at is there, and its errors are those of the result files."""

import re
from pathlib import Path

import pytest

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
    assert re.fullmatch(r"\w+: \d+ features an image\n", capsys.readouterr().out)
    assert names["X"].shape == (100, 4800)
    assert names["z"].shape == (8, 16, 32, 32)


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", README.read_text(encoding="utf-8"))
    here = [(README.parent / path, place) for path, place in links if "://" not in path]
    assert here
    assert [path for path, _ in here if not path.exists()] == []
    assert [place for path, place in here if place and place not in places(path)] == []


def places(page: Path) -> list[str]:
    """What a link can name on a page: its headings, in small letters with hyphens."""
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
    "peers, the same SVM: raw pixels": "Raw pixels",
    "k-means on whitened patches": "k-means on whitened patches (Coates and Ng)",
    "scattering": "Scattering (kymatio)",
}


def test_every_error_rate_is_that_of_its_result_files() -> None:
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
