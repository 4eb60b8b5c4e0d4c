"""Pictures along the walk through the labelling page, at three sizes, light and dark.

PYTHONPATH=tests python tests/pages/walk_pictures.py FOLDER
"""

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from pages.conftest import chromium
from pages.labelled import Served, press, serving
from pages.opened import Opened
from pages.test_walks import PHONE, current

SIZES: dict[str, dict[str, Any]] = {
    "1440x900": {"viewport": {"width": 1440, "height": 900}},
    "1280x720": {"viewport": {"width": 1280, "height": 720}},
    "390x844": PHONE,
}
LABELS = 8


def take(browser: Any, folder: Path, out: Path, size: str, scheme: str) -> None:
    """Keep the first question, the page after some labels, and the dialog of a class."""
    made = Served(folder / f"{size}-{scheme}")
    with (
        serving(made.page()) as server,
        Opened(browser, server.url, color_scheme=scheme, **SIZES[size]) as opened,
    ):

        def keep(moment: str) -> None:
            opened.next_frame()
            opened.tab.screenshot(path=out / f"{size}-{scheme}-{moment}.png")

        keep("1-first")
        for _ in range(LABELS):
            opened.tab.locator("#class-name").fill(made.truth(current(opened)))
            opened.tab.locator("#give").click()
            opened.settle()
        opened.tab.wait_for_timeout(1500)
        keep("2-labels")
        opened.tab.locator(".class").first.focus()
        press(opened, "<F2>")
        keep("3-class")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made, sync_playwright() as api:
        browser = api.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for size in SIZES:
            for scheme in ("light", "dark"):
                take(browser, Path(made), folder, size, scheme)
                print(size, scheme, flush=True)
        browser.close()
