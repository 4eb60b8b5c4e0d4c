"""Seconds after a label, without server and browser: until the classes of all pictures follow, and
until everything has followed that may come later.

    python -m benchmarks.labels.after_a_label DIGITS.npz [--counts 360 5000 20000] [--labels 15]

DIGITS.npz has `images` [N, H, W] and `classes` [N]. The pictures are described by colours and
edges, as on the page, and by principal components of their pixels in place of learned features,
which would take minutes and have rows of about the same size. Suggestions get their true classes,
each a moment after the classes of the one before followed, as by a person in a hurry; the next
`--labels` after all has followed. Views alone come first, then the election between three
candidates. The load average tells how far to trust the clock; processor seconds hardly depend on
it.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.labelling.descriptions import Description, PlainSettings, plain_description
from whatwhere.labelling.follower import Follower

RESULTS = Path(__file__).parent / "results" / "after_a_label.json"
COMPONENTS = 300  # columns in place of learned features
MOMENT = 0.2  # seconds in which a person in a hurry sees the next picture and presses a key


class Components:
    """Stands for the describer of learned features; nothing new is described here."""

    columns: ClassVar[dict[str, int]] = {"learned": COMPONENTS}
    why = "The rows are principal components."

    def __call__(self, images: object, progress: object = None) -> torch.Tensor:
        raise NotImplementedError


def described(images: torch.Tensor) -> tuple[Description, Description]:
    """Describe pictures [N, H, W] by views, and by principal components."""
    plain = plain_description(ww.data.load(images.numpy()), PlainSettings().views)
    flat = images.flatten(1).float()
    flat = flat - flat.mean(0)
    _, vectors = torch.linalg.eigh(flat.T @ flat)
    learned = torch.nn.functional.normalize(flat @ vectors[:, -COMPONENTS:], dim=1)
    return plain, Description("learned features", learned, Components(), None, Components.columns)


class Person:
    """Labels suggestions with their true classes."""

    def __init__(self, plain: Description, classes: np.ndarray) -> None:
        self.classes = classes
        self.session = ww.Labelling(plain.rows[:, :2].numpy())
        self.session.use(plain)
        self.lock = threading.RLock()
        self.follower = Follower(self.session, self.lock, lambda: None)

    def settle(self) -> None:
        """Wait until the process computes nothing more."""
        before = -1.0
        while time.process_time() - before > 0.01:
            before = time.process_time()
            time.sleep(0.4)

    def label(self) -> tuple[float, float]:
        """Label the first suggestion; seconds on the clock and of the processor until the classes
        follow."""
        with self.lock:
            row = self.follower.tray()[0]
            clock, processor = time.monotonic(), time.process_time()
            self.session.labels.say({row: str(self.classes[row])})
            self.follower.labels_changed()
            self.follower.wait(100)
        return time.monotonic() - clock, time.process_time() - processor

    def labels(self, count: int, hurried: bool) -> dict[str, Any]:
        """Label some; how long classes took, and everything."""
        clocks, processors, totals = [], [], []
        for _ in range(count):
            start = time.process_time()
            clock, processor = self.label()
            clocks.append(clock)
            processors.append(processor)
            if hurried:
                time.sleep(MOMENT)
            else:
                self.settle()
                totals.append(time.process_time() - start)
        self.settle()
        found = {"clock": clocks, "processor": processors, "all processor": totals}
        summary = {name: spread(values) for name, values in found.items() if values}
        wrong = self.session.predict().classes != self.classes.astype(str)
        return summary | {"error %": round(100 * float(wrong.mean()), 1)}


def spread(values: list[float]) -> dict[str, float]:
    named = {"least": min(values), "median": float(np.median(values)), "most": max(values)}
    return {name: round(value, 3) for name, value in named.items()}


def measured(images: torch.Tensor, classes: np.ndarray, labels: int) -> dict[str, Any]:
    """One session."""
    plain, learned = described(images)
    person = Person(plain, classes)
    found: dict[str, Any] = {"load average": round(os.getloadavg()[0], 1)}
    found["views, hurried"] = person.labels(labels, hurried=True)
    found["views"] = person.labels(labels, hurried=False)
    start = time.process_time()
    person.follower.offer(learned)
    clock, processor = person.label()
    person.settle()
    found["a label when learned features are offered"] = {
        "clock": round(clock, 2),
        "processor": round(processor, 2),
        "all processor": round(time.process_time() - start, 2),
    }
    found["three candidates, hurried"] = person.labels(labels, hurried=True)
    found["three candidates"] = person.labels(labels, hurried=False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("digits", type=Path)
    parser.add_argument("--counts", nargs="+", type=int, default=[360, 5_000, 20_000])
    parser.add_argument("--labels", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    digits = np.load(given.digits)
    images = torch.from_numpy(digits["images"])
    result: dict[str, Any] = {"machine": machine()}
    for count in given.counts:
        found = measured(images[:count], digits["classes"][:count], given.labels)
        result[str(count)] = found
        print(count, json.dumps(found), flush=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
