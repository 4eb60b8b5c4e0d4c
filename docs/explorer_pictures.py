"""Make the explorer's pictures: python docs/explorer_pictures.py makes docs/images/explorer.png and
explorer.webp, python docs/explorer_pictures.py FOLDER the pages of other models, explorer-*.webp,
one of them of the run in FOLDER that `python -m benchmarks.labels.walk FOLDER` made.

Needs a Chromium or Chrome and Playwright (both part of the development setup).
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from whatwhere import data, models
from whatwhere.explorer.page import Explorer
from whatwhere.explorer.settings import ExplorerSettings
from whatwhere.learning import read_run
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
            shot.resize(
                (ANIMATION_WIDTH, round(ANIMATION_WIDTH * shot.height / shot.width)), Image.LANCZOS
            )
        )
        self.times.append(milliseconds)

    def save(self, path: Path) -> None:
        first, *rest = self.frames
        first.save(
            path,
            save_all=True,
            append_images=rest,
            duration=self.times,
            loop=0,
            quality=70,
            method=6,
        )


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
    at = [
        [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        for stroke in STROKES
    ]
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


def screens(
    browser: Any, name: str, page: str, act: Callable[[Any], None] = lambda tab: None
) -> None:
    """The page on a wide and on a narrow screen, side by side, at half the size."""
    shots = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        for width in (1280, 400):
            tab = browser.new_page(viewport={"width": width, "height": 860})
            tab.set_default_timeout(300_000)
            tab.goto(file.as_uri())
            tab.locator("body[aria-busy=false]").wait_for()
            act(tab)
            tab.locator("body[aria-busy=false]").wait_for()
            tab.wait_for_timeout(400)
            shots.append(Image.open(io.BytesIO(tab.screenshot())).convert("RGB").reduce(2))
            tab.close()
    both = Image.new("RGB", (sum(shot.width for shot in shots) + 10, shots[0].height), "white")
    both.paste(shots[0], (0, 0))
    both.paste(shots[1], (shots[0].width + 10, 0))
    both.save(IMAGES / f"{name}.webp", quality=70, method=6)


def crop_a_photograph(browser: Any, folder: Path) -> None:
    """A photograph that is dropped on the page of a model of photographs, and the crop that is
    explained."""
    from sklearn.datasets import load_sample_images

    pictures = folder / "photographs"
    pictures.mkdir()
    for number, picture in enumerate(load_sample_images().images):
        Image.fromarray(picture).convert("L").save(pictures / f"{number}.png")
    model, recipe = load(models.path("photographs")), read_recipe("photographs")
    page = Explorer(
        model,
        recipe,
        data.load(pictures, size=64),
        name="photographs",
        settings=ExplorerSettings(examples=2),
    ).export()

    def crop(tab: Any) -> None:
        tab.locator("#file").set_input_files(pictures / "0.png")
        tab.locator("#crop-size").fill("0.4")
        settle(tab)

    screens(browser, "explorer-photograph", page, crop)


def kinds_of_models(browser: Any, folder: Path, walk: Path) -> None:
    """The pages of a model of clothes, of photographs and of a folder of pictures (of
    `benchmarks/labels/walk.py`)."""
    clothes = data.load("fashion-mnist", split="test")
    page = Explorer(
        load(models.path("fashion")),
        Recipe.paper(),
        clothes,
        name="fashion",
        settings=ExplorerSettings(examples=50),
    )
    screens(browser, "explorer-clothes", page.export())
    crop_a_photograph(browser, folder)
    run = read_run(walk / "run")
    pictures = data.load(walk / "pictures").with_channels(run.model.spec.channels)
    screens(
        browser,
        "explorer-folder",
        Explorer(
            run.model, run.recipe, pictures, name="run", settings=ExplorerSettings(examples=20)
        ).export(),
    )


def main() -> None:
    browser_path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if browser_path is None:
        sys.exit("no Chromium or Chrome was found; install one (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        if len(sys.argv) > 1:
            kinds_of_models(browser, Path(folder), Path(sys.argv[1]))
            return
        digits = data.load("digits", split="test")
        page = Explorer(
            load(models.path("mnist")),
            Recipe.paper(),
            digits,
            name="mnist",
            settings=ExplorerSettings(examples=300),
        ).export()
        file = Path(folder) / "explorer.html"
        file.write_text(page, encoding="utf-8")
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
        tab.evaluate("scrollTo(0, 0)")
        tab.screenshot(path=IMAGES / "explorer.png")
        browser.close()


if __name__ == "__main__":
    main()
