"""`auto` takes coordinate descent where the measured table says that it is faster."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.engines import resolve
from whatwhere.engines.cpu import greedy_choice
from whatwhere.model import Problem

TABLE = Path(__file__).parents[2] / "benchmarks" / "speed" / "results" / "greedy_table.json"

pytest.importorskip("numba", reason="numba is not installed")


def problem_of(row: dict[str, Any], tolerance: float = 1e-5) -> Problem:
    """Random signals whose codes have the share of a row of the table."""
    generator = torch.Generator().manual_seed(0)
    model = ww.DeconvNet(ww.ModelSpec.signals(row["waveforms"], 32, pool_size=1))
    signals = torch.randn(3, 1, 1, row["samples"], generator=generator)
    spec = ww.InferenceSpec.coding(lam=1.0, tolerance=tolerance)
    unit = Problem(model, signals, ww.Phase(layer=1), spec)
    threshold = row["share"] * float(greedy_choice.largest_correlations(unit).median())
    spec = ww.InferenceSpec.coding(lam=1 / threshold, tolerance=tolerance)
    return Problem(model, signals, ww.Phase(layer=1), spec)


@pytest.mark.skipif(not TABLE.exists(), reason="the results of benchmarks are not installed")
def test_auto_follows_the_table() -> None:
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]
    assert len(rows) == 36
    faster = {"greedy": 0, "cpu": 0}
    for row in rows:
        expected = "greedy" if row["time, greedy / cpu"] < 1 else "cpu"
        faster[expected] += 1
        assert resolve("auto", problem_of(row)).name == expected, row
    assert min(faster.values()) > 3, "a table that cannot fail"


def test_rough_codes_are_greedy() -> None:
    dense = {"waveforms": 32, "samples": 300, "share": 0.02}
    assert resolve("auto", problem_of(dense)).name == "cpu"
    assert resolve("auto", problem_of(dense, tolerance=1e-2)).name == "greedy"


def test_correlations_are_those_of_the_model() -> None:
    problem = problem_of({"waveforms": 3, "samples": 50, "share": 0.5})
    sized = problem.sized
    flat = [ww.latents.PoolingParams(*[torch.zeros(3, 2, *sized.regions[0].grid)] * 2)]
    g = sized.propagate(problem.masked_target, sized.weights(flat))
    expected = g.flatten(1).amax(1).clamp(min=0)
    torch.testing.assert_close(greedy_choice.largest_correlations(problem), expected)
