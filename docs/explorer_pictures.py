"""Make the explorer's pictures, docs/images/explorer*.png and explorer.webp: python docs/explorer_pictures.py

Needs a Chromium or Chrome and Playwright (both part of the development setup).
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from whatwhere import data, models
from whatwhere.explorer.export import Explorer
from whatwhere.model import load
from whatwhere.spec import Recipe
from whatwhere.spec.toml import read_recipe

IMAGES = Path(__file__).parent / "images"
SIZE = {"width": 1280, "height": 720}
ANIMATION_WIDTH = 900
STROKES = (  # of a 5, in shares of the drawing area
    ((0.68, 0.2), (0.37, 0.2)),
    ((0.37, 0.2), (0.35, 0.46), (0.5, 0.44), (0.64, 0.53), (0.64, 0.68), (0.5, 0.8), (0.33, 0.74)),
)


class Film:
    """Pictures of a tab, one after the other, each with the time it is shown."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.frames: list[Image.Image] = []
        self.times: list[int] = []

    def take(self, milliseconds: int) -> None:
        shot = Image.open(io.BytesIO(self.tab.screenshot())).convert("RGB")
        self.frames.append(
            shot.resize((ANIMATION_WIDTH, round(ANIMATION_WIDTH * shot.height / shot.width)), Image.LANCZOS)
        )
        self.times.append(milliseconds)

    def save(self, path: Path) -> None:
        first, *rest = self.frames
        first.save(path, save_all=True, append_images=rest, duration=self.times, loop=0, quality=70, method=6)


def settle(tab: Any) -> None:
    tab.wait_for_timeout(200)
    tab.locator("#running").wait_for(state="hidden", timeout=120_000)
    tab.wait_for_timeout(400)


def draw(tab: Any, film: Film) -> None:
    """Draw a digit by hand, stroke by stroke, and wait until it is explained."""
    tab.locator("#clear").click()
    settle(tab)
    film.take(700)
    box = tab.locator("#draw").bounding_box()
    at = [[(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke] for stroke in STROKES]
    for stroke in at:
        tab.mouse.move(*stroke[0])
        tab.mouse.down()
        for point in stroke[1:]:
            tab.mouse.move(*point, steps=6)
            film.take(120)
        tab.mouse.up()
    settle(tab)


def watch(tab: Any, film: Film) -> None:
    """Inference once more, from its first step to its last."""
    for step in (0, 1, 2, 4, 7, 12, 20, 35, 60, 100, 150, 200):
        tab.locator("#scrub").fill(str(step))
        tab.wait_for_timeout(150)
        film.take(220)
    film.take(900)


def move(tab: Any, film: Film) -> None:
    """Select the strongest feature and move its Gaussian around its region."""
    tab.locator("#active .tile").first.click()
    tab.wait_for_timeout(600)
    film.take(900)
    for angle in np.linspace(0, 2 * np.pi, 13):
        tab.locator("#mu-x").fill(f"{0.5 * np.cos(angle):.2f}")
        tab.locator("#mu-y").fill(f"{0.5 * np.sin(angle):.2f}")
        tab.wait_for_timeout(150)
        film.take(160)
    film.take(1200)


def crop_a_photograph(browser: Any, folder: Path) -> None:
    """A photograph that is dropped on the page of a model of photographs, and the crop that is explained."""
    from sklearn.datasets import load_sample_images

    pictures = folder / "pictures"
    pictures.mkdir()
    for number, picture in enumerate(load_sample_images().images):
        Image.fromarray(picture).convert("L").save(pictures / f"{number}.png")
    model, recipe = load(models.path("photographs")), read_recipe("photographs")
    page = Explorer(model, recipe, data.load(pictures, size=64), name="photographs", examples=2).export()
    (folder / "photographs.html").write_text(page, encoding="utf-8")
    tab = browser.new_page(viewport=SIZE)
    tab.goto((folder / "photographs.html").as_uri())
    tab.locator("#step-label:not(:empty)").wait_for()
    tab.locator("#file").set_input_files(pictures / "0.png")
    tab.locator("#crop-size").fill("0.4")
    settle(tab)
    tab.screenshot(path=IMAGES / "explorer-photograph.png")


def main() -> None:
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser_path is None:
        sys.exit("no Chromium or Chrome was found; install one (Debian: apt-get install chromium)")
    digits = data.load("digits", split="test")
    page = Explorer(load(models.path("mnist")), Recipe.paper(), digits, name="mnist", examples=300).export()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "explorer.html"
        file.write_text(page, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        tab = browser.new_page(viewport=SIZE)
        tab.set_default_timeout(120_000)
        tab.goto(file.as_uri())
        tab.locator("#step-label:not(:empty)").wait_for()
        settle(tab)
        film = Film(tab)
        film.take(1200)  # an example, so that the first frame shows something
        draw(tab, film)
        watch(tab, film)
        move(tab, film)
        film.save(IMAGES / "explorer.webp")
        tab.screenshot(path=IMAGES / "explorer.png")
        crop_a_photograph(browser, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
