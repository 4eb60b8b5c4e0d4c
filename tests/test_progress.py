"""When the time that is left is shown."""

from types import SimpleNamespace

import pytest

from whatwhere import progress
from whatwhere.progress import Pace


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The time that was set."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `progress`."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_the_first_pieces_do_not_count_for_the_time_that_is_left(clock: Clock) -> None:
    """They took 24 s, because they include compiling; each of the others takes 0.5 s."""
    pace = Pace(126)
    clock.now = 24.0
    pace.add(0)
    pace.add(1)
    assert (pace.rate, pace.time_left) == ("", "")
    for _ in range(6):
        clock.now += 0.5
        pace.add(1)
        assert (pace.rate, pace.time_left) == ("", "")
    clock.now += 0.5
    pace.add(1)
    assert (pace.done, pace.rate, pace.time_left) == (8, "2/s", "59 s left")


def test_of_slow_pieces_the_time_is_known_after_ten_seconds(clock: Clock) -> None:
    pace = Pace(1000, done=100)
    pace.add(1)
    clock.now = 9.0
    pace.add(3)
    assert pace.time_left == ""
    clock.now = 10.0
    pace.add(1)
    assert (pace.rate, pace.time_left) == ("0.4/s", "37 min left")


def test_the_time_is_known_after_a_twentieth_of_the_pieces(clock: Clock) -> None:
    pace = Pace(100)
    pace.add(1)
    clock.now = 1.0
    pace.add(4)
    assert pace.time_left == ""
    pace.add(1)
    assert (pace.rate, pace.time_left) == ("5/s", "19 s left")
