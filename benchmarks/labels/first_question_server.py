"""Seconds from the command to the first question, and from a label to the classes, without a
browser.

    python -m benchmarks.labels.first_question_server make FOLDER PHOTOGRAPHS [--pictures 20000]
    python -m benchmarks.labels.first_question_server time FOLDER … [--labels 10] [--starts 3]

As `benchmarks.labels.first_question`, on a machine that has no browser: a client asks for what the
page asks for, in its order. The first question is there when the page, its state, the picture that
is asked for and the first sheet of small pictures have arrived. `make` cuts pictures of 96 × 96
pixels from photographs. The command is started several times for the first question. Then one
session labels as fast as it is answered: at the start, and again when all pictures are described.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.labels.first_question import processor_seconds, spread
from benchmarks.machine import machine

RESULTS = Path(__file__).parent / "results" / "first_question_server.json"
SIDE = 96  # pixels


def make(folder: Path, photographs: Path, pictures: int) -> None:
    """Cut pictures from photographs, at random places."""
    from PIL import Image

    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    files = sorted(photographs.iterdir())
    for number in range(pictures):
        photograph = Image.open(files[number % len(files)]).convert("RGB")
        x, y = (int(generator.integers(extent - SIDE)) for extent in photograph.size)
        crop = photograph.crop((x, y, x + SIDE, y + SIDE))
        crop.save(folder / f"{number:05d}.jpg", quality=85)


class Client:
    """A command, and what the page would ask its server for."""

    def __init__(self, folder: Path, out: Path) -> None:
        command = [sys.executable, "-m", "whatwhere", "label", str(folder), "--out", str(out)]
        self.start = time.monotonic()
        self.program = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "BROWSER": "true"},
        )
        assert self.program.stdout is not None
        self.url = self.program.stdout.readline().strip()
        assert re.match(r"http://127\.0\.0\.1:\d+/", self.url), self.url

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=120) as answer:
            return bytes(answer.read())

    def state(self, path: str = "state") -> dict[str, Any]:
        return dict(json.loads(self.get(path)))

    def first_question(self) -> dict[str, Any]:
        """Wait for the first question; seconds since the command."""
        found = {"address": time.monotonic() - self.start}
        self.get("")
        state = self.state()
        while "names" not in state:
            time.sleep(0.05)
            state = self.state()
        found["state"] = time.monotonic() - self.start
        self.get(f"picture/{state['tray'][0]}")
        self.get("sheet/0")
        found["question"] = time.monotonic() - self.start
        found["processor"] = processor_seconds(self.program.pid)
        return {name: round(value, 2) for name, value in found.items()}

    def label(self, row: int, name: str) -> None:
        origin = "/".join(self.url.split("/")[:3])
        request = urllib.request.Request(
            f"{self.url}label",
            data=json.dumps({"rows": [row], "name": name}).encode(),
            headers={"Content-Type": "application/json", "Origin": origin},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert "failed" not in json.load(answer)

    def labels(self, count: int) -> dict[str, Any]:
        """Label suggestions; seconds to the answer, to the next picture, and to the classes."""
        answers, pictures, classes = [], [], []
        for number in range(count):
            state = self.state()
            first, second = state["tray"][:2]
            start = time.monotonic()
            self.label(first, "abc"[number % 3])
            answers.append(time.monotonic() - start)
            self.get(f"picture/{second}")
            pictures.append(time.monotonic() - start)
            news: dict[str, Any] = {}
            while not news.get("follows") or "best" not in news:  # which waits, as the page does
                news = self.state(f"news/{state['revision']}.{state['generation']}")
                state |= news
            classes.append(time.monotonic() - start)
        return {
            "answer": spread(answers),
            "next picture": spread(pictures),
            "classes": spread(classes),
        }

    def wait_for_all(self) -> float:
        """Wait until all pictures are described by views; seconds since the command."""
        while None in self.state()["places"]:
            time.sleep(2)
        return round(time.monotonic() - self.start, 1)

    def stop(self) -> float:
        start = time.monotonic()
        self.program.send_signal(signal.SIGINT)
        self.program.wait(60)
        return round(time.monotonic() - start, 2)


def measured(folder: Path, labels: int, starts: int) -> dict[str, Any]:
    """Several starts, and one session."""
    found: dict[str, Any] = {"starts": []}
    for number in range(starts):
        with tempfile.TemporaryDirectory() as name:
            client = Client(folder, Path(name) / "labels.csv")
            found["starts"].append(client.first_question())
            if number == starts - 1:
                found["labels at the start"] = client.labels(labels)
                found["all described"] = client.wait_for_all()
                found["labels then"] = client.labels(labels)
            found["ends"] = client.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("what", choices=("make", "time"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--labels", type=int, default=10)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.what == "make":
        make(*given.folders, given.pictures)
        return
    result: dict[str, Any] = {"machine": machine()}
    result["machine"]["cores"] = len(os.sched_getaffinity(0))
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    result["seconds to import torch"] = round(time.monotonic() - start, 2)
    for folder in given.folders:
        load = round(os.getloadavg()[0], 2)
        count = sum(1 for _ in folder.iterdir())
        found = measured(folder, given.labels, given.starts)
        result[folder.name] = {"pictures": count, "load average before": load, **found}
        print(folder.name, json.dumps(result[folder.name]), flush=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
