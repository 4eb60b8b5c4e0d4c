"""When the time that is left is shown."""

import io
import re
import time

import pytest
from rich.console import Console

from whatwhere.commands.outputs import Stages
from whatwhere.progress import Pace, time_left


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The time that was set."""
        return self.now


def test_the_first_pieces_do_not_count_for_the_time_that_is_left() -> None:
    """They took 24 s, because they include compiling; each of the others takes 0.5 s."""
    clock = Clock()
    pace = Pace(126, now=clock.monotonic)
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


def test_of_slow_pieces_the_time_is_known_after_ten_seconds() -> None:
    clock = Clock()
    pace = Pace(1000, 100, clock.monotonic)
    pace.add(1)
    clock.now = 9.0
    pace.add(3)
    assert pace.time_left == ""
    clock.now = 10.0
    pace.add(1)
    assert (pace.rate, pace.time_left) == ("0.4/s", "37 min left")


def test_the_time_is_known_after_a_twentieth_of_the_pieces() -> None:
    clock = Clock()
    pace = Pace(100, now=clock.monotonic)
    pace.add(1)
    clock.now = 1.0
    pace.add(4)
    assert pace.time_left == ""
    pace.add(1)
    assert (pace.rate, pace.time_left) == ("5/s", "19 s left")


def test_work_that_is_not_done_never_takes_0_s() -> None:
    assert [time_left(seconds) for seconds in (0.0, 0.4, 1.4, 119.4)] == [
        "1 s left",
        "1 s left",
        "1 s left",
        "119 s left",
    ]
    clock = Clock()
    pace = Pace(40, now=clock.monotonic)
    said = []
    while pace.done < pace.total:
        pace.add(1)
        clock.now += 0.01
        said.append(pace.time_left)
    assert set(said) == {"", "1 s left"}
    assert said[-1] == "", "all is done"


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_numbers_are_seen_whole_on_a_narrow_terminal(width: int) -> None:
    text = io.StringIO()
    stages = Stages()
    stages.console = Console(file=text, force_terminal=True, width=width, highlight=False)
    title = "learning 2 layers of features, each in 1 pass over 20,000 pictures"
    with stages.stage(title, 20_000) as advance:
        advance(100)
        time.sleep(0.02)
        advance(12_000)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())
    (last,) = {line.strip() for line in re.split(r"[\r\n]", drawn) if "12100/20000" in line}
    assert last.startswith("learning")
    assert re.search(r"12100/20000 .*\d s left$", last)
