"""How the page looks, at both sizes, in one scheme each, loosely compared with pictures that were
looked at.

PYTHONPATH=tests python tests/pages/test_screens.py     takes the pictures again, after a change
that is meant
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pages.opened import Opened

SCREENS = Path(__file__).parent / "screens"
SIZES = {"desktop": {"width": 1280, "height": 720}, "phone": {"width": 390, "height": 844}}
CASES = [("desktop", "light"), ("phone", "dark")]
FRAGMENT = "steps=30&image=e3&scheme="
SMALLER = 8  # fonts differ between machines, places and colours do not


def screen(browser: Any, file: Path, size: str, scheme: str) -> Image.Image:
    with Opened(browser, file.as_uri(), FRAGMENT + scheme, viewport=SIZES[size]) as opened:
        shot = Image.open(io.BytesIO(opened.tab.screenshot())).convert("RGB")
        return shot.resize((shot.width // SMALLER, shot.height // SMALLER), Image.Resampling.BOX)


@pytest.mark.browser
@pytest.mark.parametrize(("size", "scheme"), CASES)
def test_the_page_looks_as_it_did(browser: Any, page_file: Path, size: str, scheme: str) -> None:
    now = np.asarray(screen(browser, page_file, size, scheme), dtype=float)
    then = np.asarray(Image.open(SCREENS / f"{size}-{scheme}.png").convert("RGB"), dtype=float)
    assert now.shape == then.shape
    difference = np.abs(now - then).mean()
    assert difference < 8, (
        f"mean difference {difference:.1f} of 255: look at it, then take the pictures again"
    )


if __name__ == "__main__":
    import tempfile

    from playwright.sync_api import sync_playwright

    from pages.conftest import chromium, hostile_page

    SCREENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as api:
        file = Path(folder) / "page.html"
        page = hostile_page()
        file.write_text(page, encoding="utf-8")
        browser = api.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for size, scheme in CASES:
            screen(browser, file, size, scheme).save(SCREENS / f"{size}-{scheme}.png")
        browser.close()
