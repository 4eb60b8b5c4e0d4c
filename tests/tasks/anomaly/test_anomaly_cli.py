"""`whatwhere anomaly fit` and `score` as a person uses them, and the page."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import whatwhere as ww
from surfaces import scratched, surface
from tiny_run import whatwhere
from whatwhere.errors import RunError
from whatwhere.pages.anomalies import curve, histogram, outline_path


def save_pictures(folder: Path, pictures: torch.Tensor, prefix: str) -> None:
    folder.mkdir(exist_ok=True)
    for n, picture in enumerate((255 * pictures[:, 0]).round().to(torch.uint8).numpy()):
        Image.fromarray(picture).save(folder / f"{prefix}{n}.png")


def test_a_folder_of_normal_pictures_finds_the_scratched_ones(tmp_path: Path) -> None:
    save_pictures(tmp_path / "normal", surface(12), "n")
    save_pictures(tmp_path / "new", surface(3, seed=5, height=40), "good, ")
    save_pictures(tmp_path / "new", scratched(surface(2, seed=6))[0], "<b>bad")
    file, out = tmp_path / "made" / "detector", tmp_path / "report"
    printed = json.loads(
        whatwhere(
            "anomaly", "fit", tmp_path / "normal", "--out", file, "--json", "--false-alarms", 0.2
        )
    )
    detector = ww.AnomalyDetector(false_alarms=0.2).fit(tmp_path / "normal")
    assert printed["threshold"] == detector.threshold_.value
    assert printed["pictures"] == 12
    assert "are anomalies. The least normal is <b>bad" in whatwhere(
        "anomaly", "score", file, tmp_path / "new", "--out", out
    )
    with (out / "scores.csv").open() as table:
        rows = list(csv.DictReader(table))
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    expected = dict(zip(names, -detector.score_samples(tmp_path / "new"), strict=True))
    assert {row["name"]: float(row["score"]) for row in rows} == pytest.approx(expected, abs=1e-4)
    assert [float(row["score"]) for row in rows] == sorted(
        (float(row["score"]) for row in rows), reverse=True
    )
    assert {row["name"][:6] for row in rows[:2]} == {"<b>bad"}
    assert all(int(row["anomaly"]) == (float(row["score"]) > printed["threshold"]) for row in rows)
    page = (out / "index.html").read_text()
    assert len(re.findall(r"<li[ >]", page)) == 5
    assert "&lt;b&gt;bad" in page
    assert "<b>bad" not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)  # no outside requests
    with pytest.raises(RunError, match="this command reads it"):
        whatwhere(
            "anomaly",
            "fit",
            tmp_path / "normal",
            "--out",
            tmp_path / "normal" / "n0.png",
            "--overwrite",
        )
    with pytest.raises(RunError, match="exists already"):
        whatwhere("anomaly", "fit", tmp_path / "normal", "--out", file)


def test_the_odd_pictures_of_an_unsorted_folder_come_first(tmp_path: Path) -> None:
    save_pictures(tmp_path / "all", surface(9), "n")
    save_pictures(tmp_path / "all", scratched(surface(1, seed=6))[0], "bad")
    out = tmp_path / "report"
    printed = json.loads(
        whatwhere("anomaly", "odd", tmp_path / "all", "--out", out, "--json", "--quiet")
    )
    assert printed["pictures"] == 10
    assert 1 <= printed["anomalies"] <= 2
    with (out / "scores.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert rows[0]["name"] == "bad0.png"
    detector = ww.AnomalyDetector(contamination=0.1).fit(tmp_path / "all")
    names = sorted(path.name for path in (tmp_path / "all").iterdir())
    by_others = {
        names[n]: score for n, score in zip(detector.fitted_, detector.normal_scores_, strict=True)
    }
    assert len(by_others) == 9
    assert "bad0.png" not in by_others
    found = {row["name"]: float(row["score"]) for row in rows if row["name"] in by_others}
    assert found == pytest.approx(by_others, abs=1e-4)
    assert len(re.findall(r"<li[ >]", (out / "index.html").read_text())) == 10


def test_a_recording_is_scored_and_drawn_as_a_curve(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    recording = torch.rand(400, generator=generator)
    np.savetxt(tmp_path / "normal.csv", recording)
    recording[200:210] += 5.0
    np.savetxt(tmp_path / "new.csv", recording)
    printed = whatwhere("anomaly", "fit", tmp_path / "normal.csv", "--out", tmp_path / "detector")
    assert "50 % of normal pictures score higher (95 % interval: 2.5 to 98 %)." in printed
    assert "To reach 5 %, give at least 19 pictures." in printed
    whatwhere(
        "anomaly",
        "score",
        tmp_path / "detector",
        tmp_path / "new.csv",
        "--out",
        tmp_path / "report",
    )
    page = (tmp_path / "report" / "index.html").read_text()
    assert 'class="anomaly"' in page
    assert "aspect-ratio:400/50" in page


def test_a_curve_joins_successive_samples_and_leaves_gaps() -> None:
    drawn = curve(torch.tensor([[[0.0, 0.0, 7.0, torch.nan, 3.0]]]))
    black = [(drawn[0, :, t] == 0).nonzero().flatten().tolist() for t in range(5)]
    assert black == [[7], [7], [0, 1, 2, 3, 4, 5, 6, 7], [], [4]]


def test_the_outline_encloses_a_region() -> None:
    inside = torch.zeros(3, 4, dtype=torch.bool)
    inside[1, 1:3] = True
    edges = re.findall(r"M(\d+) (\d+)([hv])1", outline_path(inside))
    assert sorted("".join(edge) for edge in edges) == ["11h", "11v", "12h", "21h", "22h", "31v"]


def test_the_histogram_of_equal_scores_is_finite() -> None:
    drawn = histogram(np.zeros(3), np.zeros(2), 0.0)
    assert "nan" not in drawn
    assert drawn.count("<path") == 2
    assert drawn.count("h16") == 80  # bins
