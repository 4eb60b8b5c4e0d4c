"""The accessibility check of axe-core, which is not part of the project: `make axe` installs it in
a temporary folder and runs it.

PYTHONPATH=tests python tests/pages/axe.py AXE.js OUT.json     checks all pages
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCRIPT = os.environ.get("AXE_JS", "")
"""The file axe.min.js of the npm package axe-core; '' if it is not here."""

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
SERIOUS = ("serious", "critical")
RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const place = ({ target, failureSummary }) => ({ target, failureSummary });
  return found.violations.map(({ id, impact, help, nodes }) => ({
    id, impact, help, nodes: nodes.map(place),
  }));
}"""


def violations(tab: Any, script: str = SCRIPT) -> list[dict[str, Any]]:
    """What axe-core finds on the page that a tab shows. The tab needs `bypass_csp`."""
    tab.add_script_tag(path=script)
    found: list[dict[str, Any]] = tab.evaluate(RUN)
    return found


def serious(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if one["impact"] in SERIOUS]


@contextmanager
def shown(browser: Any, url: str, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """A tab with a page, which may run scripts of others."""
    context = browser.new_context(
        bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 800}
    )
    tab = context.new_page()
    tab.set_default_timeout(120_000)
    tab.goto(url)
    # a report has no script, so it is never busy
    tab.locator("body[aria-busy=false], body:not(:has(script))").wait_for()
    yield tab
    context.close()


@contextmanager
def served_pages(folder: Path) -> Iterator[dict[str, str]]:
    """The addresses of all pages by their names."""
    from pages.conftest import hostile_page
    from pages.labelled import Served, serving
    from pages.reports import REPORTS

    explorer = folder / "explorer.html"
    explorer.write_text(hostile_page(), encoding="utf-8")
    pages = {"explorer": explorer.as_uri()}
    for name, make in REPORTS.items():
        (folder / name).mkdir()
        pages[f"{name} report"] = make(folder / name).as_uri()
    made = Served(folder / "label")
    labelling = made.page()
    with serving(labelling) as server:
        assert labelling.session is not None
        labelling.session.label({row: made.truth(row) for row in range(0, 30, 3)})
        yield {"labelling": server.url, **pages}


def main(script: str, out: str) -> None:
    import tempfile

    from playwright.sync_api import sync_playwright

    from pages.conftest import chromium

    results: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as api,
        served_pages(Path(folder)) as pages,
    ):
        browser = api.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, url in pages.items():
            for width in WIDTHS:
                for scheme in SCHEMES:
                    with shown(browser, url, width, scheme) as tab:
                        results[f"{name}, {width} pixels, {scheme}"] = violations(tab, script)
        browser.close()
    Path(out).write_text(json.dumps(results, indent=1) + "\n")
    for name, found in results.items():
        kinds = ", ".join(f"{one['id']} ({one['impact']})" for one in found) or "nothing"
        print(f"{name}: {kinds}")
    sys.exit(any(serious(found) for found in results.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
