"""The pictures of the labelling page in the how-to and in the README.

    python docs/labelling_pictures.py [CHROMIUM]
    python docs/labelling_pictures.py CHROMIUM CELLS      # the README's, from a folder of cells

1,000 of the embedded digits, the model `mnist` and its learned steps. The first suggestion is
labelled, always with its true class; pictures are taken before, after a few and after more labels,
and on a phone. CELLS has a sub-folder for each kind (the BCCD data set, MIT licence).
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import whatwhere as ww
from whatwhere.html.server import PageServer
from whatwhere.inference.learned_steps import resolve_steps
from whatwhere.labelling.page import LabelPage

OUT = Path(__file__).parent / "howto"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 780}
STAGES = {0: "labelling-1.webp", 9: "labelling-2.webp", 20: "labelling.webp"}
REVIEW = "labelling-review.webp"
README = Path(__file__).parent / "images" / "use-labels.png"


def page(folder: Path) -> tuple[LabelPage, np.ndarray]:
    digits = ww.data.load("digits").subset(np.arange(1000), "1,000 digits")
    model, inference = resolve_steps(ww.load("mnist"), "learned")
    recipe = replace(ww.Recipe.paper(), inference=inference, plan=())
    run = ww.learning.TrainedRun("mnist", recipe, model)
    made = LabelPage(
        lambda stage: ww.Labelling(digits, run=run, labels=folder / "labels.csv", stage=stage),
        digits.name,
        folder / "classifier.safetensors",
    )
    made.thread.join()
    return made, np.asarray(digits.labels)


def label(tab: Any, truth: np.ndarray, count: int) -> None:
    """Label the first suggestion, which is chosen."""
    cell = tab.locator("#tray .cell").first
    name = str(truth[int(cell.get_attribute("data-row"))])
    tab.locator("#class-name").fill(name)
    tab.locator("#class-name").press("Enter")
    tab.get_by_text(f"{count} of 1,000 pictures").wait_for()


def shot(tab: Any, name: str) -> None:
    tab.locator("body[aria-busy=false]").wait_for()
    tab.evaluate("document.activeElement.blur()")
    tab.mouse.move(2, 2)
    tab.wait_for_timeout(1500)  # the estimate of the error follows
    picture = Image.open(io.BytesIO(tab.screenshot()))
    picture.save(OUT / name, quality=80, method=6)
    print(OUT / name, flush=True)


def picture_of_cells(chromium: str, cells: Path) -> None:
    """Three labels of each kind, drawn once."""
    images = ww.data.load(cells)
    assert images.classes is not None
    truth = np.array(images.classes)[np.asarray(images.labels)]
    draw = np.random.default_rng(0)
    chosen = [
        draw.choice(np.flatnonzero(truth == kind), 3, replace=False) for kind in images.classes
    ]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as api:
        table = Path(name) / "labels.csv"
        made = LabelPage(
            lambda stage: ww.Labelling(images, labels=table, stage=stage),
            "blood cells",
            Path(name) / "classifier.safetensors",
        )
        made.thread.join()
        assert made.session is not None
        made.session.label({int(row): str(truth[row]) for row in np.concatenate(chosen)})
        with PageServer(made.answer, act=made.act) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            tab = browser.new_page(viewport={"width": 1120, "height": 700})
            tab.set_default_timeout(120_000)
            tab.goto(server.url)
            tab.locator("body[aria-busy=false]").wait_for()
            tab.wait_for_function("[...document.images].every(i => i.complete)")
            tab.wait_for_timeout(10_000)  # the map draws its pictures as they come
            tab.screenshot(path=README)
            browser.close()
            server.shutdown()


def main() -> None:
    if len(sys.argv) > 2:
        picture_of_cells(sys.argv[1], Path(sys.argv[2]))
        return
    chromium = sys.argv[1] if len(sys.argv) > 1 else "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as api:
        shown, truth = page(Path(folder))
        with PageServer(shown.answer, act=shown.act) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            tab = browser.new_page(viewport=WIDE)
            tab.set_default_timeout(120_000)
            tab.goto(server.url)
            tab.locator("body[aria-busy=false]").wait_for()
            for count in range(max(STAGES) + 1):
                if count:
                    label(tab, truth, count)
                if count in STAGES:
                    if count == max(STAGES):
                        tab.locator("#tray .cell").nth(1).click()
                        tab.locator("#why").click()
                        tab.locator("#reasons .reason canvas").first.wait_for()
                    shot(tab, STAGES[count])
            tab.get_by_role("button", name="Look through the pictures").first.click()
            shot(tab, REVIEW)
            phone = browser.new_page(viewport=PHONE, color_scheme="dark")
            phone.goto(server.url)
            phone.locator("body[aria-busy=false]").wait_for()
            shot(phone, "labelling-phone.webp")
            browser.close()
            server.shutdown()


if __name__ == "__main__":
    main()
