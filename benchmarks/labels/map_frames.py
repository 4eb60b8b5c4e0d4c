"""Milliseconds between frames while the map of the labelling page is moved and zoomed.

    PYTHONPATH=tests python -m benchmarks.labels.map_frames [PICTURES ...]

Random pictures with random descriptors, whose classes follow three labels. Chromium draws with the
processor alone. The load of the machine is kept with the numbers.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

import whatwhere as ww
from benchmarks.machine import machine
from pages.conftest import chromium
from pages.labelled import GivenRows, press, serving, until_said
from pages.opened import Opened
from whatwhere.labelling.page import LabelPage

RESULTS = Path(__file__).parent / "results" / "map_frames.json"
# Moves the map with Alt and a drag, then zooms it, once a frame; returns milliseconds of each.
FRAMES = """async ([kind, count]) => {
  const map = document.querySelector("#map"), box = map.getBoundingClientRect(), times = [];
  const at = n => ({ clientX: box.x + 200 + 3 * n, clientY: box.y + 150 + 2 * n, bubbles: true,
                     cancelable: true, altKey: true, pointerId: 1, button: 0, buttons: 1 });
  map.setPointerCapture = () => {};
  if (kind === "move") map.dispatchEvent(new PointerEvent("pointerdown", at(0)));
  let last = await new Promise(requestAnimationFrame);
  for (let n = 1; n <= count; n++) {
    if (kind === "move") map.dispatchEvent(new PointerEvent("pointermove", at(n)));
    else map.dispatchEvent(new WheelEvent("wheel", { ...at(0), deltaY: n % 20 < 10 ? -40 : 40 }));
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  if (kind === "move") map.dispatchEvent(new PointerEvent("pointerup", at(count)));
  return times;
}"""


def measured(browser: Any, count: int) -> dict[str, Any]:
    """Frames of one map."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count, 8, 8), dtype=np.uint8)
    images = ww.data.load(pixels)
    rows = generator.normal(size=(count, 3)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        page = LabelPage(lambda _: GivenRows(images, rows), "many", Path(folder) / "classifier")
        size = {"width": 1440, "height": 900}
        with serving(page) as server, Opened(browser, server.url, viewport=size) as opened:
            for number, name in enumerate("abc", start=1):
                press(opened, f"{name}{name} <Enter>")
                until_said(opened, page, number)
            press(opened, "<Escape>")
            opened.tab.wait_for_timeout(5000)  # all small pictures are here
            opened.tab.locator("#zoom-in").click()
            opened.tab.locator("#zoom-in").click()
            opened.next_frame()
            found = {}
            for kind in ("move", "zoom"):
                times = opened.tab.evaluate(FRAMES, [kind, 60])
                found[kind] = {
                    "median": round(statistics.median(times), 1),
                    "tenth longest": round(sorted(times)[-6], 1),
                }
            return found


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or [300, 5_000, 20_000]
    result: dict[str, Any] = {"machine": machine(), "unit": "ms between frames"}
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for count in counts:
            load = round(os.getloadavg()[0], 2)
            result[str(count)] = {"load average before": load, **measured(browser, count)}
            print(count, result[str(count)], flush=True)
            RESULTS.write_text(json.dumps(result, indent=1) + "\n")
        browser.close()


if __name__ == "__main__":
    main()
