"""The place at which the power of a recording changes."""

import numpy as np
import pytest

from whatwhere.signals.onsets import change_of_power


@pytest.mark.parametrize("at", [170, 200, 231])
def test_the_place_of_a_change_of_power(at: int) -> None:
    """Also with a channel that is off, one with an offset, and an unknown one."""
    x = np.random.default_rng(0).standard_normal((4, 1, 400))
    x[..., at:] *= 6
    x[1] = 0
    x[2] += 1000
    x[3] = np.nan
    assert abs(change_of_power(x, 200.0, 60) - at) <= 2


def test_a_place_without_samples_stays() -> None:
    assert change_of_power(np.zeros((1, 1, 400)), 200.0, 60) == 200
    assert change_of_power(np.ones((1, 1, 8)), 3.0, 60) == 3


def test_the_cost_is_that_of_two_variances() -> None:
    """Against the likelihood written out for each place."""
    x = np.random.default_rng(1).standard_normal(120)
    x[70:] *= 2
    steps = np.diff(x)
    costs = {
        k: k * np.log(np.mean(steps[:k] ** 2)) + (119 - k) * np.log(np.mean(steps[k:] ** 2))
        for k in range(10, 110)
    }
    best = min(costs, key=lambda k: costs[k])
    assert change_of_power(x[None, None], 59.0, 200) == best + 1
