"""Take the pictures that test_screens.py compares with: PYTHONPATH=tests python tests/explorer/take_screens.py"""

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from explorer.conftest import chromium, hostile_page
from explorer.test_screens import CASES, SCREENS, screen

if __name__ == "__main__":
    SCREENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as api:
        file = Path(folder) / "page.html"
        page = hostile_page()
        file.write_text(page, encoding="utf-8")
        browser = api.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for size, scheme in CASES:
            screen(browser, file, size, scheme).save(SCREENS / f"{size}-{scheme}.png")
        browser.close()
