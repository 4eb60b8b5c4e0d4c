"""Seconds from the command to the first question, and from a label to the next picture.

    python -m benchmarks.labels.first_question FOLDER [FOLDER ...] [--labels 15] [--view desktop]

`whatwhere label FOLDER` runs as a person would run it, and Chromium opens its address. Per folder:
seconds until the address is printed, until a picture is asked for, from Enter to the next picture
(in the page's own time, until the frame after the one that draws it), and until the classes of all
pictures follow. The model learns meanwhile. The load of the machine and the processor seconds of
the command are kept with the numbers, because they depend on both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

RESULTS = Path(__file__).parent / "results" / "first_question.json"

DRAWN = """row => {
    const picture = document.querySelector("#picture");
    return picture.complete && picture.naturalWidth > 0 && picture.dataset.row !== row;
}"""
# Keeps milliseconds from each Enter to the frame after the one that draws the next picture.
WATCH = """() => {
    window.painted = [];
    const picture = document.querySelector("#picture");
    document.addEventListener("keydown", event => {
        if (event.key !== "Enter") return;
        const row = picture.dataset.row;
        const look = () => {
            const isOther = picture.dataset.row !== row;
            const isThere = isOther && picture.complete && picture.naturalWidth > 0;
            const note = () => painted.push(performance.now() - event.timeStamp);
            requestAnimationFrame(isThere ? note : look);
        };
        requestAnimationFrame(look);
    }, true);
}"""


def measured(folder: Path, labels: int, browser: Any) -> dict[str, Any]:
    """One session of a person who labels as fast as the page goes on."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "whatwhere", "label", str(folder)]
        command += ["--out", str(Path(name) / "labels.csv")]
        start = time.monotonic()
        environment = {**os.environ, "BROWSER": "true"}
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        assert re.match(r"http://127\.0\.0\.1:\d+/", url), url
        found: dict[str, Any] = {"address": time.monotonic() - start}
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.set_default_timeout(300_000)
        tab.goto(url)
        tab.wait_for_selector("#tray .cell")
        tab.wait_for_function(DRAWN, arg="none")
        found["question"] = time.monotonic() - start
        found["processor"] = processor_seconds(program.pid)
        found |= labelled(tab, labels)
        tab.close()
        stop = time.monotonic()
        program.send_signal(signal.SIGINT)
        program.wait(60)
        found["ends"] = time.monotonic() - stop
        lines = program.stdout.read().strip().splitlines()
        found["last line"] = lines[-1] if lines else ""
    return found


def labelled(tab: Any, labels: int) -> dict[str, Any]:
    """Seconds from Enter to the next picture, as the page sees it, and to the classes of all
    pictures."""
    classes = []
    tab.evaluate(WATCH)
    for number in range(labels):
        tab.locator("#class-name").fill("abc"[number % 3])
        row = tab.locator("#picture").get_attribute("data-row")
        before = time.monotonic()
        tab.locator("#class-name").press("Enter")
        tab.wait_for_function(DRAWN, arg=row)
        tab.locator("body[aria-busy=false]").wait_for()
        classes.append(time.monotonic() - before)
    pictures = [milliseconds / 1000 for milliseconds in tab.evaluate("painted")]
    return {"next picture": spread(pictures), "classes": spread(classes)}


def spread(values: list[float]) -> dict[str, float]:
    """The least, the median and the most of some seconds."""
    named = {"least": min(values), "median": statistics.median(values), "most": max(values)}
    return {name: round(value, 3) for name, value in named.items()}


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--labels", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    names = ("chromium-headless-shell", "chromium", "google-chrome")
    chromium = next(found for name in names if (found := shutil.which(name)))
    result = json.loads(options.out.read_text()) if options.out.exists() else {}
    result["machine"] = machine()
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for folder in options.folders:
            load = round(os.getloadavg()[0], 2)
            count = sum(1 for path in folder.rglob("*") if path.is_file())
            found = measured(folder, options.labels, browser)
            result[folder.name] = {"pictures": count, "load average before": load, **found}
            print(folder.name, json.dumps(result[folder.name]), flush=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")
        browser.close()


if __name__ == "__main__":
    main()
