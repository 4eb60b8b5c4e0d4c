"""Reports in Chromium: they use the page, are whole on a phone, and show defects on the surface."""

import base64
import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pages.opened import Opened
from pages.reports import REPORTS, shapes_report

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
RIGHTMOST = """all => Math.max(...all.map(one => one.getBoundingClientRect().right))"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The address of a report by its kind; each is made once."""

    @cache
    def address(kind: str) -> str:
        return REPORTS[kind](tmp_path_factory.mktemp(kind)).as_uri()

    return address


@pytest.mark.browser
@pytest.mark.parametrize("kind", REPORTS)
def test_reports_use_the_right_half_and_are_whole_on_a_phone(
    kind: str, browser: Any, made: Callable[[str], str]
) -> None:
    url = made(kind)
    with Opened(browser, url, viewport=DESKTOP, report=True) as opened:
        shown = opened.tab.locator("main img, main svg")
        assert 0.6 * DESKTOP["width"] < shown.evaluate_all(RIGHTMOST) <= DESKTOP["width"]
        opened.tab.set_viewport_size(PHONE)
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        scrolled = opened.tab.locator("figure").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth && one.tabIndex < 0).length"
        )
        assert scrolled == 0, "keys reach every figure that is wider than the phone"


@pytest.mark.browser
def test_a_defect_is_seen_under_its_map_and_beside_it(
    browser: Any, made: Callable[[str], str]
) -> None:
    with Opened(browser, made("anomalies"), viewport=DESKTOP, report=True) as opened:
        item = opened.tab.locator("li.anomaly").first
        original, marked = item.locator(".view").all()
        left = original.bounding_box()
        right = marked.bounding_box()
        assert left["x"] + left["width"] <= right["x"]
        assert left["y"] == right["y"]
        pictures = [view.locator("img").first.get_attribute("src") for view in (original, marked)]
        assert pictures[0] == pictures[1]
        tint = marked.locator(".over img").get_attribute("src")
        content = base64.b64decode(tint.partition(",")[2])
        opacity = np.asarray(Image.open(io.BytesIO(content)))[..., 3]
        assert 0 < opacity.max() <= 0.5 * 255, "the surface is seen under the tint"
        line = marked.locator("path").first.evaluate(
            "path => [path.getBBox().width, getComputedStyle(path.ownerSVGElement).overflow]"
        )
        assert line[0] > 0
        assert line[1] == "visible", "a line along the border is whole"


@pytest.mark.browser
def test_pictures_of_any_shape_fit_beside_each_other(browser: Any, tmp_path: Path) -> None:
    """A narrow picture is not as high as the screen, and its words and patches stand beside it."""
    url = shapes_report(tmp_path).as_uri()
    with Opened(browser, url, viewport=DESKTOP, report=True) as opened:
        narrow, wide = opened.tab.locator("li").all()
        for one, ratio in ((narrow, 0.4), (wide, 2.5)):
            box = one.locator(".view").first.bounding_box()
            assert box["height"] <= 240
            assert box["width"] / box["height"] == pytest.approx(ratio, rel=0.02)
        views = narrow.locator(".views").bounding_box()
        words = narrow.locator(".about").bounding_box()
        assert words["x"] >= views["x"] + views["width"]
        assert words["y"] < views["y"] + 10
        heights = [one.bounding_box()["height"] for one in (narrow, wide)]
        assert abs(heights[0] - heights[1]) < 120, "one leaves no large gap below the other"
        for patch in narrow.locator(".patches img").all():
            assert 80 <= patch.bounding_box()["width"] <= 96.5
            rendering = patch.evaluate("image => getComputedStyle(image).imageRendering")
            assert rendering == "pixelated"
        opened.tab.set_viewport_size(PHONE)
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert narrow.locator(".view").first.bounding_box()["height"] <= 240


@pytest.mark.browser
def test_a_dashed_box_is_drawn_around_the_least_normal_place(
    browser: Any, made: Callable[[str], str]
) -> None:
    with Opened(browser, made("anomalies"), viewport=DESKTOP, report=True) as opened:
        for one in opened.tab.locator("li").all():
            marked = one.locator(".view").nth(1)
            view = marked.bounding_box()
            box = marked.locator("rect").last.bounding_box()
            assert 10 < box["width"] < view["width"]
            assert view["x"] - 2 <= box["x"]
            assert box["x"] + box["width"] <= view["x"] + view["width"] + 2
            dashes = marked.locator("rect").last.evaluate(
                "box => getComputedStyle(box).strokeDasharray"
            )
            assert dashes != "none"
