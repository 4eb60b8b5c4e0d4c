"""Lengths of signals, in samples or as a time."""

import pytest

from whatwhere.errors import SpecError
from whatwhere.spec.duration import samples_of


@pytest.mark.parametrize(
    ("length", "rate", "samples"), [("12ms", 2000, 24), ("0.5s", 250, 125), ("64", None, 64)]
)
def test_lengths_in_a_persons_words(length: str, rate: float | None, samples: int) -> None:
    assert samples_of(length, rate) == samples


@pytest.mark.parametrize(
    ("length", "rate"),
    [
        ("12ms", None),
        ("long", 1.0),
        ("1", 1.0),
    ],
)
def test_lengths_that_are_none(length: str, rate: float | None) -> None:
    with pytest.raises(SpecError):
        samples_of(length, rate)
