"""Marks of pictures, as the page saves them and as `fit` reads them."""

import csv
from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from surfaces import save_pictures, scratched, surface
from tiny_run import whatwhere
from whatwhere.anomaly.marks import Marks, MarksError
from whatwhere.anomaly.pictures import open_pictures
from whatwhere.errors import ImageError


def write_marks(file: Path, folder: Path, marks: dict[str, str]) -> None:
    with file.open("w", newline="") as table:
        lines = csv.writer(table)
        lines.writerow(["picture", "mark", "folder"])
        lines.writerows([name, mark, str(folder)] for name, mark in marks.items())


def test_marks_make_false_alarms_normal_and_defects_choose_the_threshold(tmp_path: Path) -> None:
    save_pictures(tmp_path / "normal", surface(12), "n")
    save_pictures(tmp_path / "new", scratched(surface(2, seed=6))[0], "bad")
    save_pictures(tmp_path / "new", surface(3, seed=5), "good")
    marks = tmp_path / "marks.csv"
    given = {"bad0.png": "defect", "bad1.png": "defect", "good0.png": "false alarm"}
    write_marks(marks, tmp_path / "new", given | {"good1.png": "not sure"})
    file = tmp_path / "detector"
    normal = tmp_path / "normal"
    printed = whatwhere("anomaly", "fit", normal, "--out", file, "--marks", marks)
    assert "learned from 13 normal pictures" in printed
    assert "of the 2 given ones" in printed
    pictures = [normal / f"n{n}.png" for n in sorted(range(12), key=str)]
    new = tmp_path / "new"
    detector = ww.AnomalyDetector().fit([*pictures, new / "good0.png"])
    detector.choose_threshold_by_defects([new / "bad0.png", new / "bad1.png"])
    loaded = ww.AnomalyDetector.load(file)
    assert loaded.threshold_ == detector.threshold_
    assert np.array_equal(loaded.normal_scores_, detector.normal_scores_)


def test_marks_of_the_normal_pictures_take_defects_out(tmp_path: Path) -> None:
    normal = tmp_path / "normal"
    save_pictures(normal, surface(12), "n")
    marks = tmp_path / "marks.csv"
    write_marks(marks, normal, {"n3.png": "defect", "n4.png": "not sure", "n5.png": "false alarm"})
    kept = Marks.read(marks).normal(open_pictures(normal), str(normal))
    assert sorted(kept.names) == sorted(f"n{n}.png" for n in range(12) if n not in (3, 4))


@pytest.mark.parametrize(
    ("text", "given"),
    [("", "first line is 'nothing'"), ("picture,mark,folder\na.png,bad,x\n", "line 2 is 'a.png")],
)
def test_a_table_that_is_none_of_marks_says_so(tmp_path: Path, text: str, given: str) -> None:
    file = tmp_path / "marks.csv"
    file.write_text(text)
    with pytest.raises(MarksError, match=given) as raised:
        Marks.read(file)
    assert raised.value.file == file
    write_marks(file, tmp_path, {"missing.png": "defect"})
    save_pictures(tmp_path, surface(1), "n")
    with pytest.raises(ImageError, match=r"marks 'missing\.png'"):
        Marks.read(file).defects()
