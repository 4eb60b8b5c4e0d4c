"""Tiny models with two layers, made once."""

import pytest

from figures.tiny_model import Tiny, make_tiny
from whatwhere.figures import style


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return make_tiny()


@pytest.fixture(scope="session")
def tiny_max() -> Tiny:
    return make_tiny(pooling="max")


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """The tests do not look at fine detail: few pixels are drawn faster."""
    monkeypatch.setitem(style.RC, "savefig.dpi", 40)
