"""Result files: one JSON file a result, found again by what it is about."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whatwhere.benchmark.machine import machine
from whatwhere.errors import RunError, WhatwhereError
from whatwhere.reproduction.subjects import Subject
from whatwhere.storage import write_atomic

Result = Mapping[str, Any]


class Results:
    """The result files of one folder.

    A file holds its `subject` (images, recipe, seed, all settings), what was `found`, the `seconds` it took and the
    `machine` (processor, GPU, versions, commit, time). It is named by its key when it was written, but found by its
    content: a setting that the program has got since then does not orphan it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, Result] = {}
        for path in sorted(folder.glob("*.json")):
            content = read(path)
            self.known[content["subject"].key] = content

    def find(self, subject: Subject) -> Result | None:
        """The result of a subject, or None where there is none yet."""
        return self.known.get(subject.key)

    def put(self, subject: Subject, found: Mapping[str, Any], seconds: float) -> Path:
        """Write a result; the file appears whole or not at all."""
        content = {
            "key": subject.key,
            "subject": subject.table(),
            "found": dict(found),
            "seconds": round(seconds, 3),
            "machine": machine(),
        }
        path = self.folder / f"{subject.kind.replace(' ', '-')}-{subject.key}.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        self.known[subject.key] = {**content, "subject": subject}
        return path


def read(path: Path) -> dict[str, Any]:
    """A result file, its subject parsed; a file that is none is refused by name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {**content, "subject": Subject.of(content["subject"]), "found": dict(content["found"])}
    except (KeyError, TypeError, ValueError, WhatwhereError) as error:
        raise RunError(f"{path} is not a result file: {error!r} (remove it, or put the right one back)") from error


def value_of(result: Result, measure: str) -> float:
    """The number that a table shows: an error rate, or what the last epoch of a training came to."""
    if measure in ("error", "few labels"):
        return float(result["found"]["error"])
    return series_of(result, measure)[-1]


def series_of(result: Result, measure: str) -> list[float]:
    """A measure of a training at every epoch of its top layer."""
    history = result["found"]["history"]
    return [float(epoch[measure]) for epoch in history if epoch["layer"] == history[-1]["layer"]]


def spread(values: list[float]) -> tuple[float, float | None]:
    """Mean and standard deviation; of a single value there is no deviation."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
