"""The benchmark of inference, with a few images and steps."""

import json

import pytest
import torch

from tiny_run import whatwhere
from whatwhere.cli import bench
from whatwhere.cli.bench import bench_inference, cases
from whatwhere.inference import engines

CPU = torch.device("cpu")
LAST = "layer 1, image step, α 1"


@pytest.fixture(autouse=True)
def one_engine(monkeypatch):
    """The engine that has nothing to compile."""
    monkeypatch.setattr(engines, "ENGINES", {"reference": engines.ENGINES["reference"]})


class Twice:
    """Solves twice, so that it is about half as fast as the reference."""

    def unsupported_reason(self, problem):
        return None

    def solve(self, problem):
        engines.ENGINES["reference"].solve(problem)
        return engines.ENGINES["reference"].solve(problem)


def test_an_engine_is_measured_with_one_and_two_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(bench, "cases", lambda steps: {LAST: cases(steps)[LAST]})
    monkeypatch.setattr(engines, "ENGINES", {"twice": Twice(), **engines.ENGINES})  # the fastest is first
    rows = list(bench_inference(CPU, images=3, steps=2, repeats=2))
    assert [(row["engine"], row["threads"]) for row in rows] == [(e, n) for n in (1, 2) for e in ("reference", "twice")]
    for row in rows:
        assert (row["case"], row["images"], row["steps"], len(row["seconds"])) == (LAST, 3, 2, 2)
        assert row["best"] == pytest.approx(6 / min(row["seconds"]))
        assert row["median"] <= row["best"]
    for reference, twice in (rows[:2], rows[2:]):
        assert (reference["speedup"], twice["speedup"]) == (1.0, twice["best"] / reference["best"])
    assert torch.get_num_threads() == before


def test_the_command_prints_text_or_json():
    arguments = ["--images", 2, "--steps", 1, "--device", "cpu"]
    printed = json.loads(whatwhere("bench", *arguments, "--json"))
    assert {row["engine"] for row in printed["measurements"]} == {"reference"}
    assert "× the reference" in whatwhere("bench", *arguments)
