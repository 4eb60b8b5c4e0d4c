"""Reports in Chromium: they use the page, and are whole on a phone."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

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
