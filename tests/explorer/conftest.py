"""A page that every test of the explorer shares, a browser where there is one, and the page opened in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatwhere import models
from whatwhere.data import Images, load
from whatwhere.explorer.export import export
from whatwhere.model import load as load_model
from whatwhere.spec import Recipe

HOSTILE = "</script><script>window.hacked = 1</script><!--<img src=x onerror=window.hacked=1>"


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def hostile_digits() -> Images:
    """30 digits of the test set whose class names and whose own name try to become markup."""
    digits = load("digits", split="test").subset(np.arange(30))
    return Images(digits.pixels, digits.labels, HOSTILE, classes=tuple(f"{HOSTILE}{n}" for n in range(10)))


@pytest.fixture(scope="session")
def page() -> str:
    """The shipped model with a few examples."""
    return export(load_model(models.path("mnist")), Recipe.paper(), hostile_digits(), name=HOSTILE)


@pytest.fixture(scope="session")
def page_file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "a #1 & <b>\"'.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = chromium()
    if found is None:
        pytest.skip("no Chromium or Chrome was found")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as api:
        launched = api.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()
