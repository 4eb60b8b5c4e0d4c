"""Processor time of every test, with the processes that it starts.

    python -m benchmarks.house.suite_times OUT.jsonl [tests/engines …]     # default: all tests
    python -m benchmarks.house.suite_times OUT.jsonl --print               # folders, slowest tests

The tests run one after the other in one process. A line holds the name of a test, its seconds with
its fixtures, the share of these in processes that ended, and the seconds in which Numba compiled.
Processor time hardly depends on what else the machine does, unlike the durations of pytest.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Times:
    """A plugin of pytest that writes a line for every test."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.compiling = 0.0

    def pytest_collection_finish(self) -> None:
        try:
            from numba.core import event
        except ImportError:
            return
        times = self

        class Compiling(event.Listener):  # type: ignore[misc]
            """Adds up the outermost compilations."""

            began: tuple[float, ...] = ()

            def on_start(self, _: object) -> None:
                self.began = (*self.began, time.process_time())

            def on_end(self, _: object) -> None:
                *self.began, start = self.began
                self.began = tuple(self.began)
                if not self.began:
                    times.compiling += time.process_time() - start

        event.register("numba:compile", Compiling())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        before, compiled = os.times(), self.compiling
        outcome = yield
        after = os.times()
        own = after.user + after.system - before.user - before.system
        others = after.children_user + after.children_system
        others -= before.children_user + before.children_system
        line = [item.nodeid, max(own + others, 0.0), others, self.compiling - compiled]
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps([line[0], *(round(value, 3) for value in line[1:])]) + "\n")
        return outcome


def summary(out: Path, slowest: int = 40) -> Iterator[str]:
    """Yield the seconds of each folder, of all tests and of the slowest ones."""
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    folders = Counter[str]()
    for name, seconds, *_ in rows:
        folders[name.split("::")[0].rpartition("/")[0]] += seconds
    yield from (f"{seconds:7.1f} s  {folder}" for folder, seconds in folders.most_common())
    yield f"{sum(folders.values()):7.1f} s  {len(rows):,} tests"
    ordered = sorted(rows, key=lambda row: -row[1])
    yield from (f"{seconds:7.2f} s  {name}" for name, seconds, *_ in ordered[:slowest])


if __name__ == "__main__":
    out = Path(sys.argv[1])
    if "--print" not in sys.argv:
        pytest.main(["-q", "-n", "0", *sys.argv[2:]], plugins=[Times(out)])
    print("\n".join(summary(out)))
