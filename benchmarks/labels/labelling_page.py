"""The labelling page with 5,000 pictures: how soon it opens, once descriptors exist, and how soon a
label counts.

    python -m benchmarks.labels.labelling_page [--labels 20] [--times 3]

The embedded digits, the model `mnist`. Descriptors are made first, of pixels, since their values do
not matter here. Then the page is opened and labelled several times, by requests alone, and in
Chromium where there is one. Seconds on the clock and of the processor are kept, and the load of the
machine with them; on a busy one the latter tell more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.classification.metric import Metric
from whatwhere.html.server import PageServer
from whatwhere.labelling.page import LabelPage
from whatwhere.model.checksums import checksum
from whatwhere.model.files import write_tensors
from whatwhere.spec.execution import TrainingOptions

RESULTS = Path(__file__).parent / "results" / "labelling_page.json"


def session(folder: Path) -> tuple[Any, ww.data.Images]:
    """What makes a session of the digits, whose descriptors and labels are in a folder."""
    digits, how, options = ww.data.load("digits"), ww.Distortions(), TrainingOptions(device="cpu")
    run = ww.read_run("mnist")
    if not (file := folder / "labels.codes.safetensors").exists():
        settings = run.recipe.inference, run.recipe.descriptor, digits.shape, how
        made_for = checksum(f"{run.model.checksum} {settings} {digits.fingerprint}", {})
        metric = Metric(torch.zeros(4800), torch.zeros(400, 4800), torch.ones(400), how)
        turn = torch.randn(784, 400, generator=torch.Generator().manual_seed(0))
        rows = F.normalize(digits[:].flatten(1) @ turn, dim=1)
        write_tensors(file, {"rows": rows} | metric.tensors(), {"made_for": made_for})

    def make(stage: Any) -> ww.Labelling:
        return ww.Labelling(
            digits,
            run=run,
            labels=folder / "labels.csv",
            invariant_to=how,
            options=options,
            stage=stage,
        )

    return make, digits


def ask(url: str, path: str, sent: Any = None) -> Any:
    headers = {"Origin": url[: url.index("/", 8)], "Content-Type": "application/json"}
    request = urllib.request.Request(
        url + path, None if sent is None else json.dumps(sent).encode(), headers
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def by_requests(url: str, start: float, truth: Any, labels: int) -> dict[str, Any]:
    """Seconds until the whole state is there, and from the request with a label until the new
    state is."""
    used = time.process_time()
    while "names" not in (state := ask(url, "state/")):
        time.sleep(0.02)
    found = {
        "opens": time.monotonic() - start,
        "opens_processor": time.process_time() - used,
        "updates": [],
    }
    used = time.process_time()
    for _ in range(labels):
        row, before = state["tray"][0], time.monotonic()
        given = ask(url, "label", {"rows": [row], "name": str(truth[row])})
        while not (state := ask(url, f"news/{given['revision']}.1")).get("follows"):
            pass
        found["updates"].append(time.monotonic() - before)
    found["update_processor"], before = (time.process_time() - used) / labels, time.monotonic()
    ask(url, "error/")
    return {**found, "estimate": time.monotonic() - before}


def in_chromium(browser: Any, url: str, start: float, truth: Any, labels: int) -> dict[str, Any]:
    """The same in the page: until it can be used, and from Enter until the number of labels
    changes."""
    tab = browser.new_page(viewport={"width": 1280, "height": 720})
    tab.set_default_timeout(120_000)
    tab.goto(url)
    tab.locator("body[aria-busy=false]").wait_for()
    opened, updates = time.monotonic() - start, []
    for count in range(1, labels + 1):
        row = int(tab.locator("#tray .cell").first.get_attribute("data-row"))  # it is chosen
        tab.locator("#class-name").fill(str(truth[row]))
        before = time.monotonic()
        tab.locator("#class-name").press("Enter")
        tab.get_by_text(f"{count} of 5,000 pictures").wait_for()
        updates.append(time.monotonic() - before)
    tab.close()
    return {"opens": opened, "updates": updates}


def measured(folder: Path, browser: Any, labels: int) -> dict[str, Any]:
    """One opening of the page, without labels of before."""
    (folder / "labels.csv").unlink(missing_ok=True)
    make, digits = session(folder)
    start = time.monotonic()
    page = LabelPage(make, digits.name, folder / "classifier.safetensors")
    with PageServer(page.answer, act=page.act) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        given = server.url, start, digits.labels, labels
        found = by_requests(*given) if browser is None else in_chromium(browser, *given)
        server.shutdown()
        thread.join()
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def spread(values: list[float]) -> dict[str, float]:
        named = {"least": min(values), "median": statistics.median(values), "most": max(values)}
        return {name: round(value, 3) for name, value in named.items()}

    return {
        "opens": spread([run["opens"] for run in runs]),
        "update": spread([u for run in runs for u in run["updates"]]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "pictures": 5000, "labels": options.labels}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways: dict[str, Any] = {"requests": None}
        if chromium := shutil.which("chromium") or shutil.which("chromium-browser"):
            from playwright.sync_api import sync_playwright

            api = sync_playwright().start()
            ways["chromium"] = api.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for way, browser in ways.items():
            runs, load = [], []
            for _ in range(options.times):
                load.append(round(os.getloadavg()[0], 2))
                runs.append(measured(folder, browser, options.labels))
            result[way] = {**summary(runs), "runs": runs, "load average before": load}
            print(way, summary(runs), "load", load, flush=True)
            RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    os._exit(0)  # the browser's driver would wait


if __name__ == "__main__":
    main()
