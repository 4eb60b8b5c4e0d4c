import pytest

from whatwhere.reproduction.reproduce import Options, reproduce
from whatwhere.reproduction.scales import Scale
from whatwhere.reproduction.subjects import DataSpec

TINY = {
    "batch_size": 15,
    "model": {"layers": {"1": {"maps": 2}, "2": {"maps": 3, "fan_in": 2}}},
    "learning": {"each": {"epochs": 2, "reset_at": [1], "inference": {"steps": 1}}},
    "inference": {"steps": 2},
}


@pytest.fixture(scope="session")
def scale():
    """A scale so small that a cell takes a fraction of a second: 30 digits, few maps, few steps."""
    return Scale("tiny", DataSpec("digits", limit=30), 2, (1.0, 10.0), {"steps": [1.0, 2.0]}, ({}, TINY))


def options_in(folder):
    return Options(folder / "results", folder / "cache", device="cpu", engine="reference")


@pytest.fixture
def options(tmp_path):
    return options_in(tmp_path)


@pytest.fixture(scope="session")
def measured(scale, tmp_path_factory):
    """The results of three tables, for tests that only read them."""
    options = options_in(tmp_path_factory.mktemp("measured"))
    assert reproduce(["pooling", "steps", "cost"], scale, options, lambda line: None).left == 0
    return options.results / "tiny"
