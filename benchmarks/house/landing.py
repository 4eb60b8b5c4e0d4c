"""The landing page of the site at two widths: python -m benchmarks.house.landing, after make docs.

Needs a Chromium and Playwright, as the tests of pages do.
"""

from pathlib import Path

from playwright.sync_api import sync_playwright

SITE = Path(__file__).parents[2] / "docs/_build/html/index.html"
OUT = Path(__file__).parent / "results"
WIDTHS = {1280: 1500, 390: 1800}  # pixels, and the height that is shown


def main(chromium: str = "/usr/bin/chromium-headless-shell") -> None:
    """Draw the page at each width."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for width, height in WIDTHS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(SITE.as_uri())
            wider = page.evaluate("document.documentElement.scrollWidth")
            assert wider <= width, f"the page is {wider} pixels wide in a window of {width}"
            page.screenshot(path=OUT / f"landing_{width}.jpg", quality=60, type="jpeg")
        browser.close()


if __name__ == "__main__":
    main()
