"""One clock for several stages."""

import pytest

from whatwhere.labelling.clock import Clock


class Time:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_time_left_counts_stages_that_have_not_begun() -> None:
    time = Time()
    clock = Clock([3.0, 1.0], now=time)
    with clock.stage("learning", 300) as advance:
        assert clock.progress is not None
        assert clock.progress.words == "1 of 2 · learning", "nothing is known yet"
        for _ in range(10):
            time.seconds += 1
            advance(10)
        # 200 pieces here at 10 a second, and a third of 30 s after it
        assert clock.progress.seconds == pytest.approx(20 + 10)
        assert clock.progress.words == "1 of 2 · learning · about 30 s left"
    with clock.stage("describing", 100) as advance:
        time.seconds += 4
        advance(1)
        assert clock.progress.words == "2 of 2 · describing · about 7 min left"


def test_the_recent_rate_counts_and_time_is_never_up_before_the_end() -> None:
    time = Time()
    clock = Clock([1.0], now=time)
    with clock.stage("learning", 1000) as advance:
        time.seconds += 300
        advance(1)  # what compiles first
        for _ in range(60):
            time.seconds += 1
            advance(10)
        assert clock.progress is not None
        assert clock.progress.seconds == pytest.approx((1000 - 601) / 10)
        advance(399)
        assert clock.progress.words.endswith("about 10 s left")


def test_a_stage_that_begins_keeps_the_time_of_the_stage_before() -> None:
    time = Time()
    clock = Clock([1.0, 1.0], now=time)
    with clock.stage("describing the pictures", 100, short="describing") as advance:
        for _ in range(10):
            time.seconds += 1
            advance(10)
    time.seconds += 40
    with clock.stage("learning", 100):
        assert clock.progress is not None
        assert clock.progress.words == "2 of 2 · learning · about 10 s left", "10 s, 40 s ago"
    clock = Clock([1.0, 3.0], now=time)
    with clock.stage("describing the pictures", 100, short="describing") as advance:
        for _ in range(10):
            time.seconds += 1
            advance(10)
        assert clock.progress is not None
        assert clock.progress.words == "1 of 2 · describing · about 30 s left"
    time.seconds += 5
    with clock.stage("learning", 100):
        assert clock.progress.words == "2 of 2 · learning · about 20 s left"
