"""The benchmark of inference, with a few images and steps."""

import json

import pytest
import torch

from tiny_run import whatwhere
from whatwhere.cli import speed
from whatwhere.cli.speed import Measurement, bench_inference, cases, speedup_rows

CPU = torch.device("cpu")
LAST = "layer 1, image step, α 1"


@pytest.fixture(autouse=True)
def one_engine(monkeypatch):
    """The engine that has nothing to compile."""
    monkeypatch.setattr(speed, "ENGINES", {"reference": speed.ENGINES["reference"]})


def measurement(engine, threads, best, case="joint"):
    numbers = {"images": 1, "steps": 1, "median": best, "seconds": (1.0,)}
    return Measurement(case=case, engine=engine, threads=threads, best=best, **numbers)


def test_speed_ups_compare_the_best_runs_with_the_same_number_of_threads():
    rows = speedup_rows(
        [measurement("reference", 1, 10.0), measurement("reference", 2, 20.0), measurement("cpu", 2, 60.0)]
    )
    assert [row["speedup"] for row in rows] == [1.0, 1.0, 3.0]


def test_an_engine_is_measured_with_one_and_two_threads(monkeypatch):
    lines = []
    before = torch.get_num_threads()
    monkeypatch.setattr(speed, "cases", lambda steps: {LAST: cases(steps)[LAST]})
    measured = bench_inference(CPU, images=3, steps=2, repeats=2, log=lines.append)
    assert {(m.engine, m.threads) for m in measured} == {("reference", 1), ("reference", 2)}
    assert len(lines) == len(measured)
    for m in measured:
        assert (m.case, m.images, m.steps, len(m.seconds)) == (LAST, 3, 2, 2)
        assert m.best == pytest.approx(6 / min(m.seconds))
        assert m.median <= m.best
    assert torch.get_num_threads() == before


def test_the_command_prints_text_or_json():
    arguments = ["--images", 2, "--steps", 1, "--device", "cpu"]
    printed = json.loads(whatwhere("bench", *arguments, "--json"))
    assert {row["engine"] for row in printed["measurements"]} == {"reference"}
    assert "speed-up" in whatwhere("bench", *arguments)
