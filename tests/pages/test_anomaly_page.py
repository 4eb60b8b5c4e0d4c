"""The page of anomalies in Chromium: defects are seen on the surface, the threshold moves, and
marks are given by keys and by mouse and saved as a table that `fit` reads."""

import base64
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pages.opened import Opened
from pages.reports import anomalies_report, gallery_page, shapes_report
from whatwhere.anomaly.marks import Marks
from whatwhere.anomaly.pictures import open_pictures

pytestmark = pytest.mark.browser
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
NORMAL = np.linspace(-2, 1.9, 40)  # two of them above 1.8


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a detector on two good and two scratched surfaces."""
    return anomalies_report(tmp_path_factory.mktemp("anomalies"))


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """A page of 30 pictures, ten of them alarms, and 40 normal scores."""
    scores = np.linspace(3, -3, 31)[:30]
    file = gallery_page(tmp_path / "page.html", [(40, 60)], scores.tolist(), NORMAL)
    with Opened(browser, file.as_uri(), viewport=DESKTOP) as opened:
        yield opened


def test_a_defect_is_seen_under_its_map_and_beside_it(browser: Any, report: Path) -> None:
    with Opened(browser, report.as_uri(), viewport=DESKTOP) as opened:
        original = opened.tab.locator("#original")
        marked = opened.tab.locator("#marked-view")
        left = original.bounding_box()
        right = marked.bounding_box()
        assert left["x"] + left["width"] <= right["x"]
        assert left["y"] == right["y"]
        pictures = [view.locator("img").first.get_attribute("src") for view in (original, marked)]
        assert pictures[0] == pictures[1]
        tint = marked.locator("img.map").get_attribute("src")
        content = base64.b64decode(tint.partition(",")[2])
        opacity = np.asarray(Image.open(io.BytesIO(content)))[..., 3]
        assert 0 < opacity.max() <= 0.5 * 255, "the surface is seen under the tint"
        line = marked.locator("path").first.evaluate(
            "path => [path.getBBox().width, getComputedStyle(path.ownerSVGElement).overflow]"
        )
        assert line[0] > 0
        assert line[1] == "visible", "a line along the border is whole"
        view = marked.bounding_box()
        box = marked.locator("rect").last.bounding_box()
        assert 10 < box["width"] < view["width"]
        assert view["x"] - 2 <= box["x"]
        assert box["x"] + box["width"] <= view["x"] + view["width"] + 2


def test_pictures_of_any_shape_are_whole(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, shapes_report(tmp_path).as_uri(), viewport=DESKTOP) as opened:
        for ratio in (0.4, 2.5):
            box = opened.box("#original")
            assert box["height"] <= 400
            assert box["width"] / box["height"] == pytest.approx(ratio, rel=0.02)
            for patch in opened.tab.locator("#patches img").all():
                assert 80 <= patch.bounding_box()["width"] <= 96.5
            opened.tab.keyboard.press("ArrowRight")
        for small in opened.tab.locator(".thumb img").all():
            assert small.bounding_box()["height"] <= 133, "it covers no name"


def test_moving_the_threshold_counts_shown_and_normal_pictures(shown: Opened) -> None:
    assert shown.text("#title") == "10 of 30 pictures are above the threshold"
    slider = shown.tab.locator("#threshold")
    steps = int(slider.get_attribute("max"))
    slider.focus()
    # one step is one score, shown or normal
    for _ in range(15):
        slider.press("ArrowRight")
    threshold = float(shown.text("#counts").split()[1].rstrip(":"))
    scores = np.linspace(3, -3, 31)[:30]
    assert threshold > 1
    assert shown.text("#title").startswith(f"{(scores > threshold).sum()} of 30")
    above = (threshold < NORMAL).sum()
    assert f"{above} of the 40 normal pictures" in shown.text("#counts")
    command = shown.tab.locator("#threshold-command")
    assert command.inner_text().endswith(f"new it --false-alarms {(above + 1) / 41:.4f}")
    slider.press("Home")
    assert shown.text("#title").startswith("30 of 30")
    assert command.is_hidden(), "no command makes every normal picture an alarm"
    slider.press("End")
    assert shown.text("#title").startswith("0 of 30")
    assert steps >= 40
    shown.tab.locator("#reset").click()
    assert shown.text("#title").startswith("10 of 30")


def test_keys_mark_pictures_and_the_table_is_saved(shown: Opened, tmp_path: Path) -> None:
    keys = shown.tab.keyboard
    for key in "dfn":  # each goes on to the next picture
        keys.press(key)
    assert shown.text("#detail-name") == "00003.png"
    keys.press("ArrowDown")
    keys.press("d")
    keys.press("u")
    assert "3 pictures marked: 1 defect, 1 false alarm, 1 not sure." in shown.text("#marked")
    assert "Of 1 marked defect, 1 is an alarm." in shown.text("#counts")
    with shown.tab.expect_download() as waiting:
        shown.tab.locator("#save").click()
    file = tmp_path / "marks.csv"
    waiting.value.save_as(file)
    marks = Marks.read(file)
    expected = {"00000.png": "defect", "00001.png": "false alarm", "00002.png": "not sure"}
    assert marks.folders == {str(tmp_path): expected}
    assert "Fit again with them" in shown.text("#marks-command")
    shown.tab.reload()
    assert "3 pictures marked" in shown.text("#marked"), "the browser keeps them"


def test_the_mouse_marks_chooses_and_filters(shown: Opened) -> None:
    shown.tab.locator("[data-row='4']").click()
    assert shown.text("#detail-name") == "00004.png"
    shown.tab.locator("#mark-buttons [data-mark='false alarm']").click()
    assert shown.text("[data-row='4'] .badge") == "false alarm"
    shown.tab.locator("#show").select_option("marked")
    assert shown.tab.locator(".cell").count() == 1
    assert shown.text("#shown") == "1 picture shown"
    shown.tab.locator("#show").select_option("alarms")
    assert shown.tab.locator(".cell").count() == 10
    shown.tab.locator("#show").select_option("all")
    shown.tab.locator("#order").select_option("near")
    first = shown.tab.locator(".cell .value").first.inner_text()
    assert abs(float(first.split()[0]) - 1) < 0.21


def test_only_the_cells_in_sight_exist_among_ten_thousand(browser: Any, tmp_path: Path) -> None:
    count = 10_000
    scores = np.linspace(5, -5, count).tolist()
    file = gallery_page(tmp_path / "many.html", [(16, 16)], scores, None)
    start = time.monotonic()
    with Opened(browser, file.as_uri(), viewport=DESKTOP) as opened:
        assert time.monotonic() - start < 30, "it opens, even on a busy machine"
        assert 8 < opened.tab.locator(".cell").count() < 80
        opened.tab.keyboard.press("End")
        assert opened.text("#detail-name") == "09999.png"
        assert opened.tab.locator("[data-row='9999']").is_visible()
        assert opened.tab.locator(".cell").count() < 80
        assert "least normal pictures only" in opened.text("#patches")


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_the_page_is_whole_at_two_sizes(
    browser: Any, report: Path, viewport: dict[str, int], scheme: str
) -> None:
    with Opened(browser, report.as_uri(), viewport=viewport, color_scheme=scheme) as opened:
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        for button in opened.tab.locator("#mark-buttons button").all():
            button.scroll_into_view_if_needed()
            assert button.bounding_box()["height"] >= 24
        opened.tab.locator("#reading summary").click()
        assert "rarer than any place of 12 normal pictures" in opened.text("#scale-high")


def test_marks_of_a_report_are_read_by_fit(browser: Any, report: Path, tmp_path: Path) -> None:
    new = report.parent.parent / "new"
    with Opened(browser, report.as_uri(), viewport=DESKTOP) as opened:
        opened.tab.keyboard.press("d")
        with opened.tab.expect_download() as waiting:
            opened.tab.locator("#save").click()
        waiting.value.save_as(tmp_path / "marks.csv")
    marks = Marks.read(tmp_path / "marks.csv")
    defects = marks.defects()
    assert defects is not None
    assert marks.sources == [str(new)]
    assert set(defects.names) < set(open_pictures(new).names)
