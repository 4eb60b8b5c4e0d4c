"""The threshold for a rate of false alarms, and its uncertainty, by simulation."""

import numpy as np
import pytest

from whatwhere.anomaly.threshold import choose_threshold, pictures_needed


@pytest.mark.parametrize(("count", "wanted"), [(19, 0.05), (99, 0.05), (200, 0.1)])
def test_the_rate_of_false_alarms_is_the_expected_one_and_in_the_interval(count: int, wanted: float) -> None:
    generator = np.random.default_rng(0)
    chosen = [choose_threshold(generator.normal(size=count), wanted) for _ in range(1500)]
    sorted_scores = np.sort(generator.normal(size=200_000))
    rates = 1 - np.searchsorted(sorted_scores, [one.value for one in chosen]) / len(sorted_scores)
    low, high = chosen[0].interval
    assert rates.mean() == pytest.approx(chosen[0].false_alarms, rel=0.1)
    assert chosen[0].false_alarms <= wanted
    assert ((low <= rates) & (rates <= high)).mean() == pytest.approx(0.95, abs=0.02)


def test_too_few_pictures_give_the_lowest_rate_that_they_can() -> None:
    chosen = choose_threshold(np.array([1.0, 3.0, 2.0]), 0.01)
    assert chosen.value == 3.0
    assert chosen.false_alarms == 0.25


def test_how_many_pictures_one_percent_needs() -> None:
    count = pictures_needed(0.01, at_most=0.02)
    assert choose_threshold(np.zeros(count), 0.01).interval[1] <= 0.02
    assert choose_threshold(np.zeros(count - 100), 0.01).interval[1] > 0.02
