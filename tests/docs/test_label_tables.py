"""The tables of the pages about few labels and about labelling are those of their result files."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test_readme import rows_of, study_results

PAGES, RESULTS = (Path(__file__).parents[2] / folder for folder in ("docs/results", "reproduction/studies/results"))
ROWS = rows_of(PAGES / "few_labels.md")


def mean(text: str) -> float:
    return float(text.split("±")[0])


def validation(row: dict[str, Any]) -> list[float]:
    """Errors of the graph with 10 labels and the prior, and with 100."""
    return [mean(row["graph"]["10"]["S"]), mean(row["graph"]["100"]["R"])]


def cells(row: str) -> list[list[str]]:
    """The numbers of a row of which a cell has one for each of several settings."""
    return [re.split(r"[;,] ", cell) for cell in ROWS[row]]


def test_poses() -> None:
    found = study_results("pose")
    for row, name in {
        "small convolutional network": "pose small network",
        "… centred and upright images": "pose small network, upright",
        "one model, centred and upright images, metric (800 columns, share 0.3), linear SVM": "pose features, share 0.3"
        " rank 800 power 0.0, linear SVM",
    }.items():
        numbers = [cell.strip("*") for cell in ROWS[row]]
        assert numbers == [f"{found[name][part]:.2f}" for part in ("test in place", "test")], row


DISTORTIONS = {"none: without the metric": "none", "all: the default": "all"}
DISTORTIONS |= {f"{kind} alone": f"only {kind}" for kind in ("rotation", "shear", "scale", "shift", "elastic")}
DISTORTIONS |= {f"… without {kind}": f"without {kind}" for kind in ("rotation", "shear", "scale", "shift", "elastic")}
DISTORTIONS |= {"… half as strong": "0.5 times", "… twice as strong": "2 times"}


def distorted(name: str) -> list[float]:
    row = study_results("ten_labels")[f"mnist distortions {name}"]
    return [*validation(row), *(mean(row["svm"][labels]["1.0"]) for labels in ("100", "1000"))]


@pytest.mark.parametrize("row", DISTORTIONS)
def test_distortions_one_by_one(row: str) -> None:
    assert [float(cell) for cell in ROWS[row]] == pytest.approx(distorted(DISTORTIONS[row]), abs=5.1e-3)


def test_numbers_of_copies_and_of_images() -> None:
    for row, names in {
        "… 2 copies; 8 copies": ("copies 2", "copies 8"),
        "… of 1,000 images; of 3,000": ("1000 images", "3000 images"),
    }.items():
        expected = [list(pair) for pair in zip(*map(distorted, names), strict=True)]
        np.testing.assert_allclose(np.array(cells(row), float), np.array(expected, float), atol=5.1e-3)


def test_graphs_of_both_views() -> None:
    few, rule = study_results("ten_labels"), "share 1.0 rank 400 power"
    for row, names in {
        "one model": [f"mnist rule one model, both views {rule} 0.0"],
        "two models; three models": [f"mnist rule {n} models, both views {rule} 0.0" for n in ("two", "three")],
        "one model, columns partly decorrelated (power -0.3)": [f"mnist rule one model, both views {rule} -0.3"],
        "three models, 5, 7, 15, 20 neighbours instead of 10": [
            f"mnist k {k} new {k} three models, both views" for k in (5, 7, 15, 20)
        ],
        "one model, nearest of four distorted copies: half as strong; as strong": [
            f"mnist min of copies {kind} one model, both views" for kind in ("half", "full")
        ],
        "scattering; both views": [f"mnist rule {n} {rule} 0.0" for n in ("scattering", "scattering, both views")],
    }.items():
        expected = np.array([validation(few[name]) for name in names], float).T
        np.testing.assert_allclose(np.array(cells(row), float), expected, atol=5.1e-3, err_msg=row)


def test_suggested_labels() -> None:
    found = json.loads((RESULTS / "labelling.json").read_text())["errors"]
    text = (PAGES / "labelling.md").read_text(encoding="utf-8")
    tables = re.findall(r"<!-- (\w+) -->\n\n(\| labels .*?)\n\n", text, re.DOTALL)
    assert {name for name, _ in tables} == {key.split()[0] for key in found}
    for name, table in tables:
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        for kind, row in zip(("suggested", "random"), rows, strict=True):
            each = [found[f"{name} {kind} {seed}"] for seed in range(3)]
            expected = [f"{100 * np.mean([errors[count] for errors in each]):.1f}" for count in head[1:]]
            assert [cell.strip("*") for cell in row[1:]] == expected, (name, kind)


def test_rules_of_suggestion() -> None:
    rows = [json.loads(line) for line in (RESULTS / "labelling_choice.jsonl").read_text().splitlines()]
    found = {
        tuple(row["rule"]): row["mean"] for row in rows if (row["set"], row["scaling"]) == ("mnist_val", "uniform")
    }
    page = rows_of(PAGES / "labelling.md")
    for row, rule in {
        "at random": ("random",),
        "**least trust around, walks of long life (0.98)**": ("walk", 0.98, 2, 1, 0),
        "… of shorter life (0.95), averaged over four steps": ("walk", 0.95, 4, 1, 0),
        "… (0.95), two steps, dense places first": ("walk", 0.95, 2, 1, 0.25),
        "variance minimisation (Ji and Han 2012)": ("vopt", 0),
        "… times the doubt about the class": ("vopt", 1),
    }.items():
        assert [float(cell.strip("*")) for cell in page[row]] == pytest.approx(found[rule], abs=0.06), row
