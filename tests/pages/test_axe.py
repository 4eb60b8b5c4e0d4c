"""No serious finding of axe-core. `make axe` installs it, and runs this and the check of all
pages."""

from pathlib import Path
from typing import Any

import pytest

from pages import axe
from pages.labelled import Served, serving

needs_axe = pytest.mark.skipif(
    not axe.SCRIPT, reason="needs axe-core: make axe, or AXE_JS=…/axe.min.js"
)


@needs_axe
@pytest.mark.browser
def test_the_explorer_has_no_serious_finding(browser: Any, page_file: Path) -> None:
    context = browser.new_context(bypass_csp=True)
    tab = context.new_page()
    tab.goto(page_file.as_uri())
    tab.locator("body[aria-busy=false]").wait_for()
    assert axe.serious(axe.violations(tab)) == []
    context.close()


@needs_axe
@pytest.mark.browser
def test_the_labelling_page_has_no_serious_finding(browser: Any, tmp_path: Path) -> None:
    made = Served(tmp_path / "label")
    shown = made.page()
    with serving(shown) as server:
        assert shown.session is not None
        shown.session.label({row: made.truth(row) for row in range(0, 30, 3)})
        context = browser.new_context(bypass_csp=True)
        tab = context.new_page()
        tab.goto(server.url)
        tab.locator("body[aria-busy=false]").wait_for()
        assert axe.serious(axe.violations(tab)) == []
        for opens in ("#show-keys", "#zoom"):
            tab.locator(opens).click()
            assert axe.serious(axe.violations(tab)) == []
            tab.keyboard.press("Escape")
        context.close()
