"""No serious finding of axe-core. `make axe` installs it, and runs this and the check of all
pages."""

from pathlib import Path
from typing import Any

import pytest

from pages import axe
from pages.labelled import Served, serving
from pages.reports import REPORTS

needs_axe = pytest.mark.skipif(
    not axe.SCRIPT, reason="needs axe-core: make axe, or AXE_JS=…/axe.min.js"
)


@needs_axe
@pytest.mark.browser
def test_the_explorer_has_no_serious_finding(browser: Any, page_file: Path) -> None:
    with axe.shown(browser, page_file.as_uri()) as tab:
        assert axe.serious(axe.violations(tab)) == []


@needs_axe
@pytest.mark.browser
def test_the_labelling_page_has_no_serious_finding(browser: Any, tmp_path: Path) -> None:
    made = Served(tmp_path / "label")
    page = made.page()
    with serving(page) as server, axe.shown(browser, server.url) as tab:
        assert page.session is not None
        page.session.label({row: made.truth(row) for row in range(0, 30, 3)})
        tab.reload()
        tab.locator("body[aria-busy=false]").wait_for()
        assert axe.serious(axe.violations(tab)) == []
        for opens in ("#show-keys", "#zoom", ".class-row .look >> nth=0"):
            tab.locator(opens).click()
            assert axe.serious(axe.violations(tab)) == []
            tab.keyboard.press("Escape")


@needs_axe
@pytest.mark.browser
@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_has_no_serious_finding(kind: str, browser: Any, tmp_path: Path) -> None:
    page = REPORTS[kind](tmp_path)
    for width in axe.WIDTHS:
        with axe.shown(browser, page.as_uri(), width) as tab:
            assert axe.serious(axe.violations(tab)) == []
