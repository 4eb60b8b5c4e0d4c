"""A page that every test of the explorer shares, one browser where there is one, and one tab with
the page in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages.opened import Opened
from whatwhere import models
from whatwhere.data import Images, load
from whatwhere.explorer import page as export
from whatwhere.explorer.settings import ExplorerSettings
from whatwhere.model import load as load_model
from whatwhere.spec import Recipe

HOSTILE = "</script><script>window.hacked = 1</script><!--<img src=x onerror=window.hacked=1>"
CODE_STEPS = 10  # of the examples' codes: enough for features to choose from


# Without the windows of a browser, the shell needs half of its processor time.
BROWSERS = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)


def chromium() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def hostile_digits() -> Images:
    """30 digits of the test set whose class names and whose own name try to become markup."""
    digits = load("digits", split="test").subset(np.arange(30))
    return Images(
        digits.pixels, digits.labels, HOSTILE, classes=tuple(f"{HOSTILE}{n}" for n in range(10))
    )


def hostile_page() -> str:
    """The page of the shipped model with these digits."""
    shown = export.Explorer(
        load_model(models.path("mnist")),
        Recipe.paper(),
        hostile_digits(),
        name=HOSTILE,
        engine="reference",
        learned_from=HOSTILE,
        settings=ExplorerSettings(code_steps=CODE_STEPS),
    )
    return shown.export()


@pytest.fixture(scope="session")
def page() -> str:
    return hostile_page()


@pytest.fixture(scope="session")
def page_file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "a #1 & <b>\"'.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = chromium()
    if found is None:
        pytest.skip(
            "needs Chromium or Chrome, which is not installed (Debian: apt-get install"
            " chromium-headless-shell)"
        )
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as api:
        launched = api.chromium.launch(
            executable_path=found,
            args=["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer"],
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def tab(browser: Any, page_file: Path) -> Iterator[Opened]:
    with Opened(browser, page_file.as_uri(), fast_timers=True) as opened:
        yield opened


@pytest.fixture
def opened(tab: Opened) -> Iterator[Opened]:
    """The tab that the tests share, as it is after opening."""
    tab.follow()
    yield tab
    tab.check()
