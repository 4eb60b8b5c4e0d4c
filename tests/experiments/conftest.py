import pytest

from whatwhere.experiments.reproduce import Options
from whatwhere.experiments.scales import Scale
from whatwhere.experiments.subjects import DataSpec


@pytest.fixture
def scale():
    """A scale so small that a table takes a second: 60 digits, few maps, few steps."""
    tiny = {
        "batch_size": 30,
        "model": {"layers": {"1": {"maps": 2}, "2": {"maps": 3, "fan_in": 2}}},
        "learning": {"each": {"epochs": 2, "reset_at": [1], "inference": {"steps": 2}}},
        "inference": {"steps": 2},
    }
    return Scale("tiny", DataSpec("digits", limit=60), 2, (1.0, 10.0), {"steps": [1.0, 2.0]}, ({}, tiny))


@pytest.fixture
def options(tmp_path):
    return Options(tmp_path / "results", tmp_path / "cache", device="cpu", engine="reference")
