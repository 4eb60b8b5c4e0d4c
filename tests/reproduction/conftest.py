import pytest

from reproduction.jobs import DataSpec
from reproduction.reproduce import (
    ReproduceOptions,
    TimeLimit,
    open_evaluator,
    open_store,
    reproduce,
)
from reproduction.scale import Scale
from whatwhere.spec import EveryEpoch

TINY = {
    "batch_size": 15,
    "model": {"layers": {"1": {"maps": 2}, "2": {"maps": 3, "fan_in": 2}}},
    "learning": {
        "each": {"epochs": 2, "update": EveryEpoch(reset_at=[1]), "inference": {"steps": 1}}
    },
    "inference": {"steps": 2},
}


def quiet(line):
    pass


@pytest.fixture(scope="session")
def scale():
    """A scale so small that a cell takes a fraction of a second: 30 digits, few maps, few steps."""
    return Scale(
        "tiny", DataSpec("digits", limit=30), 2, (1.0, 10.0), {"steps": [1.0, 2.0]}, ({}, TINY)
    )


def options_in(folder):
    return ReproduceOptions(folder / "results", folder / "cache", device="cpu", engine="reference")


@pytest.fixture
def options(tmp_path):
    return options_in(tmp_path)


@pytest.fixture
def evaluator(scale, options):
    """An evaluator without results."""
    return open_evaluator(scale, options, TimeLimit(None), quiet)


@pytest.fixture(scope="session")
def measured_folder(scale, tmp_path_factory):
    """The folder of the results of three tables, for tests that only read it."""
    options = options_in(tmp_path_factory.mktemp("measured"))
    assert reproduce(["pooling", "steps", "cost"], scale, options, quiet).remaining == 0
    return options.results


@pytest.fixture(scope="session")
def measured(scale, measured_folder):
    """The results of three tables, for tests that only read them."""
    return open_store(measured_folder, scale)
