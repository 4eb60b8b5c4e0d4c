"""Tiny models of two layers, made once."""

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
    """What is tested is not the pixels: few of them are drawn sooner."""
    monkeypatch.setitem(style.RC, "savefig.dpi", 40)
