"""The labelling page with 20,000 pictures: python -m benchmarks.labels.many_pictures [OUT]

The pictures are 20,000 PNG files: the embedded digits, each moved by a pixel or two, in a temporary
folder. Rows are their pixels, made shorter by a fixed random projection: what is measured begins
when descriptors are there. Measured in Chromium: the time from the session's start to a page that
takes a label, the times of single labels, and the time between frames while the grid is scrolled.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from playwright.sync_api import sync_playwright

import whatwhere as ww
from whatwhere.html.server import PageServer
from whatwhere.labelling.page import LabelPage
from whatwhere.progress import Stage

COUNT = 20_000
DIMENSIONS = 100
LABELS = 12
MORE = (
    60  # labels that are added at once: with more than 60 in all, every label changes all solutions
)
AFTER_MORE = 3  # labels then
FRAMES = """async () => {
  const grid = document.getElementById("grid"), times = [];
  let last = performance.now();
  for (let n = 0; n < 90; n++) {
    grid.scrollTop += 400;
    await new Promise((resolve) => requestAnimationFrame(resolve));
    times.push(performance.now() - last);
    last = performance.now();
  }
  return times;
}"""


def write_pictures(folder: Path) -> np.ndarray:
    """Write the pictures; returns their labels."""
    digits = ww.data.load("digits")
    shades = (255 * digits[:].numpy()[:, 0]).astype(np.uint8)
    generator = np.random.default_rng(0)
    for number in range(COUNT):
        shift = generator.integers(-2, 3, 2)
        moved = np.roll(shades[number % len(shades)], shift, (0, 1))
        Image.fromarray(moved).save(folder / f"{number:05d}.png")
    return np.array([digits.labels[n % len(shades)] for n in range(COUNT)])


class Described(ww.Labelling):
    """A session of pictures whose rows are given."""

    def __init__(self, images: ww.data.Images, rows: torch.Tensor, labels: Path) -> None:
        super().__init__(rows, labels=labels)
        self.images = images
        self.keys = [picture.name for picture in images.pixels.pictures]
        self.names = list(self.keys)
        self.index = {name: row for row, name in enumerate(self.names)}


def describe(images: ww.data.Images) -> torch.Tensor:
    pixels = images[:].flatten(1)
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(pixels.shape[1], DIMENSIONS, generator=generator)
    return torch.nn.functional.normalize(pixels @ projection, dim=1)


def measure(folder: Path, chromium: str) -> dict[str, Any]:
    pictures = folder / "pictures"
    pictures.mkdir()
    truth = write_pictures(pictures)
    images = ww.data.load(pictures)
    rows = describe(images)

    def make(stage: Stage) -> ww.Labelling:
        return Described(images, rows, folder / "labels.csv")

    began = time.perf_counter()
    shown = LabelPage(make, "20,000 digits", folder / "classifier.safetensors")
    with PageServer(shown.answer, act=shown.act) as server, sync_playwright() as api:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.set_default_timeout(300_000)
        tab.goto(server.url)
        tab.locator("body[aria-busy=false]").wait_for()
        opened = time.perf_counter() - began
        labels = [label(tab, truth, count) for count in range(1, LABELS + 1)]
        shown.thread.join()
        assert shown.session is not None
        added = np.random.default_rng(1).permutation(COUNT)[:MORE].tolist()
        shown.session.label({row: f"digit {truth[row]}" for row in added})
        total = len(shown.session.said)
        later = [label(tab, truth, total + count) for count in range(1, AFTER_MORE + 1)]
        tab.locator("#show-grid").click()
        cells = tab.locator("#grid .cell").count()
        frames = tab.evaluate(FRAMES)
        browser.close()
        server.shutdown()
    return {
        "pictures": COUNT,
        "opens_seconds": round(opened, 2),
        "label_seconds": [round(seconds, 2) for seconds in labels],
        "labels_added_at_once": MORE,
        "label_seconds_then": [round(seconds, 2) for seconds in later],
        "cells_drawn": cells,
        "frame_milliseconds": {
            "median": round(float(np.median(frames)), 1),
            "95 %": round(float(np.quantile(frames, 0.95)), 1),
        },
    }


def label(tab: Any, truth: np.ndarray, count: int) -> float:
    """Label the chosen picture by keys; the seconds until the page shows all that follows."""
    row = int(tab.locator("#picture").get_attribute("data-row"))
    began = time.perf_counter()
    tab.keyboard.press("Enter")
    tab.keyboard.type(f"digit {truth[row]}")
    tab.keyboard.press("Enter")
    tab.get_by_text(f"{count} of 20,000 pictures").wait_for()
    tab.locator("body[aria-busy=false]").wait_for()
    return time.perf_counter() - began


def main() -> None:
    from benchmarks.machine import machine

    chromium = "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as folder:
        result = {"machine": machine(), **measure(Path(folder), chromium)}
    text = json.dumps(result, indent=1)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
