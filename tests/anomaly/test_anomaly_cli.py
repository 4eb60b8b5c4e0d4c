"""`whatwhere anomaly fit` and `score` as a person uses them, and the page."""

import base64
import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import whatwhere as ww
from surfaces import save_pictures, scratched, surface
from tiny_run import whatwhere
from whatwhere.anomaly import Detection, Patch
from whatwhere.anomaly.aligned import OBJECT
from whatwhere.anomaly.command import check_outside
from whatwhere.anomaly.evidence import COLOUR, SURFACE
from whatwhere.anomaly.page import (
    _KINDS,
    Gallery,
    MapScale,
    PageFacts,
    PageRow,
    PageSettings,
    _outline_path,
    alarm_rates,
    count_above,
)
from whatwhere.anomaly.pictures import open_pictures
from whatwhere.anomaly.threshold import Recall, Threshold, choose_threshold
from whatwhere.app import app
from whatwhere.errors import ImageError, RunError, SpecError


def embedded(page: str, id: str = "data") -> Any:
    """What a page holds in an element, as its script reads it."""
    found = re.search(rf'<script type="application/json" id="{id}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def pixels_of(address: str) -> np.ndarray:
    content = base64.b64decode(address.partition("base64,")[2])
    return np.asarray(Image.open(io.BytesIO(content)))


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
    summary = whatwhere("anomaly", "score", tmp_path / "new", file, "--out", out)
    assert re.search(r"\d of 5 pictures are above the threshold\. About 15 % of", summary)
    assert "The least normal is <b>bad" in summary
    assert "learned from" not in summary
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
    data = embedded(page)
    assert data["names"] == [row["name"] for row in rows]
    assert data["scores"] == pytest.approx([float(row["score"]) for row in rows], abs=1e-4)
    assert data["normal"] == sorted(detector.normal_scores_.round(6), reverse=True)
    assert len(embedded(page, "small-0")) == len(embedded(page, "large-0")) == 5
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
    page = (out / "index.html").read_text()
    data = embedded(page)
    assert len(data["names"]) == 10
    assert data["normal"] is None
    assert "learned from 9 of 10 pictures and left out the 1 least normal." in data["learned"]
    # The evidence of a picture is that of its score: by what was learned from the others.
    kinds = [kind for kind in rows[0] if kind in SURFACE]
    for row in rows:
        evidence = torch.tensor([float(row[kind]) for kind in kinds])
        joined = evidence.exp().mean().log()
        assert float(joined) == pytest.approx(float(row["score"]), abs=2e-3)
    assert list(data["kinds"]) == kinds


def test_few_pictures_are_reported(tmp_path: Path) -> None:
    """With 21 pictures, two are left out, and one of 19 + 1 is 5 %."""
    save_pictures(tmp_path / "few", surface(8, height=32, width=32), "n")
    printed = whatwhere("anomaly", "odd", tmp_path / "few", "--out", tmp_path / "report")
    assert "To reach 5 %, give at least 21 pictures." in printed
    save_pictures(tmp_path / "enough", surface(21, height=32, width=32), "n")
    printed = whatwhere("anomaly", "odd", tmp_path / "enough", "--out", tmp_path / "report2")
    assert "To reach" not in printed
    file = tmp_path / "detector"
    printed = whatwhere(
        "anomaly", "fit", tmp_path / "enough", "--out", file, "--contamination", 0.1
    )
    assert "learned from 19 of 21 pictures and left out the 2 least normal." in printed
    new = tmp_path / "new"
    save_pictures(new, surface(2, seed=3, height=32, width=32), "new")
    known = sorted((tmp_path / "enough").iterdir())
    numbers = ww.AnomalyDetector.load(file).fitted_
    (new / "known.png").write_bytes(known[numbers[0]].read_bytes())
    printed = whatwhere("anomaly", "score", new, file, "--out", tmp_path / "report3")
    assert "The detector learned from 1 of these pictures" in printed


def test_the_help_of_odd_has_its_own_default() -> None:
    words = " ".join(whatwhere("anomaly", "odd", "--help").split())
    assert "Share of the pictures that you expect to be odd. Default: 0.1." in words


def test_the_report_is_never_written_among_the_pictures(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    save_pictures(pictures, surface(3), "n")
    before = sorted(pictures.rglob("*"))
    file = tmp_path / "detector"
    whatwhere("anomaly", "fit", pictures, "--out", file)
    for out in (pictures, pictures / "deep" / "report"):
        for command in (["odd", pictures], ["score", pictures, file]):
            with pytest.raises(SpecError, match="Choose a folder outside of it"):
                whatwhere("anomaly", *command, "--out", out)
    assert sorted(pictures.rglob("*")) == before
    check_outside(tmp_path / "pictures report", str(pictures))
    check_outside(tmp_path, str(pictures))
    check_outside(tmp_path / "report", "digits")


def test_a_detector_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    save_pictures(tmp_path / "normal", surface(3), "n")
    for name, problem in {"missing": "Cannot find .*missing", "normal": "is a folder, not"}.items():
        with pytest.raises(RunError, match=f"{problem}.*whatwhere anomaly fit"):
            whatwhere("anomaly", "score", tmp_path / "normal", tmp_path / name, "--out", tmp_path)
    file = tmp_path / "detector"
    ww.AnomalyDetector(features=lambda x: x[:, :, ::8, ::8]).fit(surface(3)).save(file)
    with pytest.raises(RunError, match="the command line cannot load it"):
        whatwhere("anomaly", "score", tmp_path / "normal", file, "--out", tmp_path / "report")


def test_aligned_pictures_of_several_sizes_raise_before_the_work(tmp_path: Path) -> None:
    save_pictures(tmp_path / "parts", surface(2, height=32, width=32), "n")
    save_pictures(tmp_path / "parts", surface(1, height=40, width=32), "m")
    with pytest.raises(ImageError, match=r"got 2\..*leave out --aligned"):
        whatwhere("anomaly", "odd", tmp_path / "parts", "--out", tmp_path / "report", "--aligned")


def gallery_of(picture: torch.Tensor, heat: torch.Tensor, score: float = 3.0) -> Gallery:
    """The views of one picture, whose least normal place is at row 20 and column 30."""
    gallery = Gallery(MapScale(1.0, 3.0, 12))
    found = Detection("a.png", score, {"spots": score}, heat, Patch(14, 24, 12, 12))
    gallery.add(0, found, picture, lambda: [picture[:, :12, :12]] * 5)
    return gallery


def test_the_page_shows_the_pixels_of_the_file(tmp_path: Path) -> None:
    """A pale picture keeps its colours, whatever the other pixels are."""
    y, x = np.mgrid[:48, :48] / 47
    pale = np.stack([225 - 20 * y, 190 + 10 * x, 200 + 20 * y], 2).round().astype(np.uint8)
    Image.fromarray(pale).save(tmp_path / "pale.png")
    picture = ww.anomaly.open_pictures(str(tmp_path)).read(0)
    gallery = gallery_of(picture, torch.zeros(48, 48))
    for address in (gallery.small[0][0], gallery.large[0][2]["picture"]):
        shown = pixels_of(str(address)).astype(float)
        assert np.abs(shown - pale).mean() < 2
        assert np.abs(shown - pale).max() < 10


def test_values_outside_of_0_to_1_are_shown_from_black_to_white() -> None:
    picture = torch.tensor([[[-1.0, 3.0]]]).repeat_interleave(8, 2).expand(1, 8, -1)
    shown = pixels_of(gallery_of(picture, torch.zeros(8, 16)).small[0][0])
    assert shown[0, 0] < 5
    assert shown[0, -1] > 250


def test_the_report_gives_the_rate_of_false_alarms_and_asks_for_the_share_of_defects() -> None:
    threshold = Threshold(1.0, 0.04, (0.016, 0.2))
    words = alarm_rates(150, threshold, None, None)
    assert words == (
        "About 4 % of normal pictures exceed the threshold (95 % interval: 1.6 to 20 %): 150 normal"
        " pictures would raise about 6 false alarms. Which share of the alarms is true depends on"
        " how many pictures have a defect: give that share, for example --expected 1%."
    )
    assert "would raise" not in alarm_rates(1, threshold, None, None)


def test_rare_defects_make_most_alarms_false() -> None:
    """With 1 % defects, a recall of 0.4 and 4.8 % false alarms, 92 % of the alarms are false."""
    threshold = Threshold(1.0, 0.048, (0.02, 0.08))
    words = alarm_rates(400, threshold, 0.01, Recall(4, 10, (0.12, 0.74)))
    assert words.endswith(
        "If 1 % of the pictures have a defect, about 7.8 % of the alarms are true."
    )
    at_most = alarm_rates(400, threshold, 0.01, None)
    assert "at most 17 % of the alarms are true, even if every defect raises one" in at_most


@pytest.mark.parametrize(
    ("anomalies", "pictures", "words"),
    [
        (0, 1, "The picture is not above the threshold"),
        (1, 1, "The picture is above the threshold"),
        (0, 2, "0 of 2 pictures are above the threshold"),
        (1, 2, "1 of 2 pictures is above the threshold"),
    ],
)
def test_the_title_agrees_with_its_numbers(anomalies: int, pictures: int, words: str) -> None:
    assert count_above(anomalies, pictures) == words


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
        tmp_path / "new.csv",
        tmp_path / "detector",
        "--out",
        tmp_path / "report",
    )
    page = (tmp_path / "report" / "index.html").read_text()
    [drawn] = embedded(page, "large-0")
    assert (drawn["width"], drawn["height"]) == (400, 50)
    left, top, width, height = drawn["place"]
    assert (top, height) == (0, 50)
    assert left - 16 <= 205 <= left + width + 16


def test_a_curve_joins_successive_samples_and_leaves_gaps() -> None:
    signal = torch.tensor([[[0.0, 0.0, 7.0, torch.nan, 3.0]]])
    shown = pixels_of(gallery_of(signal, torch.zeros(1, 5)).small[0][0])
    black = [(shown[:, t] < 128).nonzero()[0].tolist() for t in range(5)]
    assert black == [[7], [7], [0, 1, 2, 3, 4, 5, 6, 7], [], [4]]


def test_the_outline_encloses_a_region() -> None:
    inside = torch.zeros(3, 4, dtype=torch.bool)
    inside[1, 1:3] = True
    edges = re.findall(r"M(\d+) (\d+)([hv])1", _outline_path(inside))
    assert sorted("".join(edge) for edge in edges) == ["11h", "11v", "12h", "21h", "22h", "31v"]


def test_the_page_explains_every_kind_of_evidence() -> None:
    assert set(_KINDS) == set(SURFACE) | set(OBJECT) | set(COLOUR)


# The least normal place ---------------------------------------------------------------------------


def test_an_alarm_without_a_place_above_the_threshold_has_a_marked_place() -> None:
    """Its score is a sum of evidence, and its map stays below the threshold."""
    picture = surface(1)[0]
    gallery = gallery_of(picture, torch.full(picture.shape[1:], 0.5))
    assert gallery.small[0][1] == ""
    [(_, _, drawn)] = gallery.large
    assert drawn["path"] == ""
    assert drawn["place"] == [24, 14, 12, 12]
    row = PageRow(3.0, 0, "a.png", {"spots": 3.0}, 30, 20, 0.0)
    facts = PageFacts(Threshold(1.0, 0.05, (0.0, 0.1)), None, "learned", "rates")
    page = gallery.page([row], facts)
    assert "a dashed box marks the least normal place" in " ".join(page.split())


def test_the_marked_place_is_the_patch_below_the_picture(tmp_path: Path) -> None:
    damaged, _ = scratched(surface(2, seed=6))
    detector = ww.AnomalyDetector().fit(surface(12))
    for picture, found in zip(damaged, detector.detect(open_pictures(damaged)), strict=True):
        patch, *_ = detector.compared(picture, found.anomaly_map)
        torch.testing.assert_close(found.patch.cut(picture), patch)


def test_the_table_has_the_least_normal_place(tmp_path: Path) -> None:
    """The place is at the scratch, and the share above the threshold is that of the map."""
    save_pictures(tmp_path / "normal", surface(12), "n")
    damaged, mask = scratched(surface(4, seed=6))
    save_pictures(tmp_path / "new", damaged, "bad")
    file, out = tmp_path / "detector", tmp_path / "report"
    whatwhere("anomaly", "fit", tmp_path / "normal", "--out", file)
    whatwhere("anomaly", "score", tmp_path / "new", file, "--out", out)
    detector = ww.AnomalyDetector.load(file)
    rows = {row["name"]: row for row in rows_of(out)}
    for n, found in enumerate(detector.detect(open_pictures(tmp_path / "new"))):
        row = rows[found.name]
        x, y = int(row["x"]), int(row["y"])
        assert (x, y) == found.patch.centre
        assert mask[n, max(y - 8, 0) : y + 8, max(x - 8, 0) : x + 8].any()
        above = (found.anomaly_map > detector.outline_).float().mean()
        assert float(row["share_above"]) == pytest.approx(float(above), abs=1e-4)
        assert above > 0


def rows_of(report: Path) -> list[dict[str, str]]:
    with (report / "scores.csv").open() as table:
        return list(csv.DictReader(table))


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        (20, 30, Patch(14, 24, 12, 12)),
        (1, 43, Patch(0, 32, 12, 12)),  # moved into the picture
    ],
)
def test_a_patch_lies_in_the_picture(row: int, column: int, expected: Patch) -> None:
    patch = Patch.around(row, column, 12, (40, 44))
    assert patch == expected
    assert patch.centre == (expected.left + 6, expected.top + 6)
    assert Patch.around(row, column, 12, (8, 9)) == Patch(0, 0, 8, 9)


def test_red_goes_from_the_outline_to_the_largest_value_of_normal_pictures() -> None:
    scale = MapScale(outline=1.0, rarest=3.0, pictures=12)
    values = torch.tensor([[0.9, 1.01, 2.0, 3.0, 9.0, torch.nan]])
    below, least, between, most, beyond, unknown = scale.tint(values, PageSettings())[0, :, 3]
    assert below == unknown == 0
    assert 0.1 * 255 < least < 0.2 * 255
    assert least < between < most == beyond < 0.5 * 255
    assert scale.words == ("1 in 10", "rarer than any place of 12 normal pictures")


def test_only_the_least_normal_pictures_have_a_large_view() -> None:
    gallery = Gallery(MapScale(1.0, 3.0, 12), PageSettings(large=2, per_part=2, per_large_part=1))
    picture = surface(1, height=24, width=24)[0]
    asked = []
    for number, score in enumerate((1.0, 3.0, 0.5, 2.0)):
        found = Detection(str(number), score, {}, torch.zeros(24, 24), Patch(0, 0, 8, 8))
        gallery.add(number, found, picture, lambda n=number: asked.append(n) or [picture])
    assert asked == [0, 1, 3], "the third picture is never among the two least normal ones"
    rows = [PageRow(score, n, str(n), {}, 4, 4, 0.0) for score, n in ((3, 1), (2, 3), (1, 0))]
    facts = PageFacts(Threshold(1.0, 0.05, (0.0, 0.1)), None, "learned", "rates")
    page = gallery.page(rows, facts)
    assert embedded(page)["large"] == [0, 1, -1]
    assert [len(embedded(page, f"small-{n}")) for n in range(2)] == [2, 1]
    assert [len(embedded(page, f"large-{n}")) for n in range(2)] == [1, 1]


def test_a_thin_line_is_seen_in_the_small_map_of_a_large_picture() -> None:
    heat = torch.zeros(900, 900)
    heat[:, 450] = 2.0
    small = pixels_of(gallery_of(torch.rand(1, 900, 900), heat).small[0][1])
    assert (small[:, :, 3] > 0).any(1).all()


# Another threshold, detectors in files ------------------------------------------------------------


@pytest.fixture(scope="module")
def normal(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A folder of normal and one of new pictures, and a detector of the normal ones."""
    folder = tmp_path_factory.mktemp("normal")
    save_pictures(folder / "normal", surface(12), "n")
    save_pictures(folder / "new", surface(8, seed=5), "good")
    save_pictures(folder / "one", surface(1, seed=5), "good")
    whatwhere("anomaly", "fit", folder / "normal", "--out", folder / "detector")
    return SimpleNamespace(folder=folder, new=folder / "new", detector=folder / "detector")


def test_score_chooses_the_threshold_again(normal: SimpleNamespace, tmp_path: Path) -> None:
    detector = ww.AnomalyDetector.load(normal.detector)
    expected = choose_threshold(detector.normal_scores_, 0.4)
    assert expected.value < detector.threshold_.value
    wanted = ("--false-alarms", 0.4)
    whatwhere("anomaly", "score", normal.new, normal.detector, "--out", tmp_path, *wanted)
    rows = rows_of(tmp_path)
    for row in rows:
        assert int(row["anomaly"]) == (float(row["score"]) > expected.value)
    learned = embedded((tmp_path / "index.html").read_text())["learned"]
    assert f"Its threshold is {expected.value:.2f}." in learned
    scores = np.array([float(row["score"]) for row in rows])
    assert (scores > expected.value).sum() > (scores > detector.threshold_.value).sum()
    assert ww.AnomalyDetector.load(normal.detector).false_alarms == 0.05  # the file is unchanged


def test_a_rate_that_needs_more_normal_pictures_is_reported(
    normal: SimpleNamespace, tmp_path: Path
) -> None:
    arguments = ("anomaly", "score", normal.new, normal.detector, "--out", tmp_path / "report")
    printed = whatwhere(*arguments, "--false-alarms", 0.01)
    assert "The detector learned from 12 normal pictures. That is too few" in printed
    assert "To reach 1 %, give at least 99 pictures." in printed
    with pytest.raises(SpecError):
        whatwhere(*arguments, "--false-alarms", 0)


def test_odd_writes_the_detector_that_it_fitted(tmp_path: Path) -> None:
    """The table has the scores of `fit`, by what was learned from the others; the pictures that
    were left out get their scores from the detector itself, as from `score`."""
    pictures = tmp_path / "all"
    save_pictures(pictures, surface(9), "n")
    save_pictures(pictures, scratched(surface(1, seed=6))[0], "bad")
    file, out = tmp_path / "made" / "detector", tmp_path / "odd"
    whatwhere("anomaly", "odd", pictures, "--out", out, "--detector", file)
    detector = ww.AnomalyDetector.load(file)
    names = sorted(path.name for path in pictures.iterdir())
    in_table = {row["name"]: float(row["score"]) for row in rows_of(out)}
    learned = {names[n]: s for n, s in zip(detector.fitted_, detector.normal_scores_, strict=True)}
    assert {name: in_table[name] for name in learned} == pytest.approx(learned, abs=1e-4)
    assert set(in_table) - set(learned) == {"bad0.png"}
    whatwhere("anomaly", "score", pictures, file, "--out", tmp_path / "score")
    by_detector = {row["name"]: float(row["score"]) for row in rows_of(tmp_path / "score")}
    assert in_table["bad0.png"] == by_detector["bad0.png"]
    assert by_detector["n0.png"] != in_table["n0.png"]
    with pytest.raises(RunError, match="exists already"):
        whatwhere("anomaly", "odd", pictures, "--out", out, "--detector", file)


def test_one_picture_is_scored_and_counted_as_one(normal: SimpleNamespace, tmp_path: Path) -> None:
    [picture] = (normal.folder / "one").iterdir()
    arguments = ["anomaly", "score", str(picture), str(normal.detector), "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, arguments)
    assert "scoring 1 picture:" in shown.stderr
    assert "scoring 1 pictures" not in shown.stderr
    assert re.search("The picture is (not )?above the threshold", shown.stdout)
    assert re.search(r"Its score is -?\d\.\d\d\.", shown.stdout)
    assert "a picture, a folder of pictures" in " ".join(
        whatwhere("anomaly", "score", "--help").lower().split()
    )


def test_loading_is_a_stage_and_measures_no_picture(
    normal: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contrast of normal pictures is in the file: measuring it again took most of the time."""
    expected = ww.AnomalyDetector().fit(normal.folder / "normal").contrast_

    def measure(pictures: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("whatwhere.anomaly.detector.Contrast.of", measure)
    assert ww.AnomalyDetector.load(normal.detector).contrast_ == expected
    arguments = ["anomaly", "score", str(normal.new), str(normal.detector), "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0
    assert shown.stderr.startswith("loading the detector …")


def test_a_report_among_the_pictures_is_an_error_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from whatwhere.app import main\n"
        "try: main()\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    arguments = ["anomaly", "odd", str(tmp_path), "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert "is the folder of the pictures" in done.stderr
    assert done.stdout.strip() == "False"


def test_a_folder_in_place_of_a_command_is_answered_with_a_line_to_type() -> None:
    ended = CliRunner().invoke(app, ["anomaly", "my pictures"])
    assert ended.exit_code == 2
    assert "run: whatwhere anomaly odd 'my pictures' --out odd" in " ".join(ended.output.split())
