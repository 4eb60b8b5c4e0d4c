"""Seconds of the processor for the labelling page with 20,000 pictures:
python -m benchmarks.labels.many_pictures_processor FOLDER [OUT]

As `many_pictures.py`, on a machine that does other work at the same time: not the time that passes
is measured, but the time that the server and the main thread of the page compute. On several cores
a label of more than 60 takes less: labels that are held out are then solved at the same time.
PyTorch has one thread. FOLDER keeps the pictures for the next time.
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
from playwright.sync_api import sync_playwright

import whatwhere as ww
from benchmarks.labels.many_pictures import (
    AFTER_MORE,
    COUNT,
    LABELS,
    MORE,
    Described,
    describe,
    label,
    write_pictures,
)
from whatwhere.html.server import Content, PageServer
from whatwhere.labelling.page import LabelPage

FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class TimedPage(LabelPage):
    """A page that records how long its threads compute."""

    def _start(self, make: Any) -> None:
        self.labels: list[float] = []
        super()._start(make)
        self.session_and_map = time.thread_time()  # the thread does nothing else

    def answer(self, path: str) -> Content | None:
        began = time.thread_time()
        content = super().answer(path)
        if path == "state":
            self.first_state = time.thread_time() - began
        return content

    def act(self, path: str, sent: Any) -> Content | None:
        began = time.process_time()  # of all threads: held-out labels have their own
        content = super().act(path, sent)
        self.labels.append(time.process_time() - began)
        return content


def measure(pictures: Path, folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    if not (pictures / "truth.npy").exists():
        (pictures / "pictures").mkdir(parents=True)
        np.save(pictures / "truth.npy", write_pictures(pictures / "pictures"))
    truth = np.load(pictures / "truth.npy")
    images = ww.data.load(pictures / "pictures")
    rows = describe(images)
    shown = TimedPage(
        lambda _: Described(images, rows, folder / "labels.csv"),
        "20,000 digits",
        folder / "classifier.safetensors",
    )
    with PageServer(shown.answer, act=shown.act) as server, sync_playwright() as api:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = api.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.set_default_timeout(900_000)
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def computed() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

        tab.goto(server.url)
        tab.locator("body[aria-busy=false]").wait_for()
        opened = computed()
        tab.wait_for_load_state("networkidle")
        assert shown.session is not None
        page: list[float] = []
        for number in range(LABELS + AFTER_MORE):
            if number == LABELS:
                added = np.random.default_rng(1).permutation(COUNT)[:MORE].tolist()
                shown.session.label({row: f"digit {truth[row]}" for row in added})
            began = computed()
            label(tab, truth, len(shown.session.said) + 1)
            tab.evaluate(FRAME)
            page.append(computed() - began)
        browser.close()
        server.shutdown()
    return {
        "pictures": COUNT,
        "session_and_map": round(shown.session_and_map, 2),
        "first_state": round(shown.first_state, 2),
        "page_until_open": round(opened, 2),
        "labels_added_at_once_after_the_twelfth": MORE,
        "label_server": [round(seconds, 2) for seconds in shown.labels],
        "label_page": [round(seconds, 2) for seconds in page],
    }


def main() -> None:
    from benchmarks.machine import machine

    with tempfile.TemporaryDirectory() as folder:
        result = {"machine": machine(), **measure(Path(sys.argv[1]), Path(folder))}
    text = json.dumps(result, indent=1)
    print(text)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text + "\n")


if __name__ == "__main__":
    main()
