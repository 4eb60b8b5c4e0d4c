"""Reports in Chromium: they use the page, are whole on a phone, and show defects on the surface."""

import base64
import io
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pages.opened import Opened
from pages.reports import REPORTS

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
