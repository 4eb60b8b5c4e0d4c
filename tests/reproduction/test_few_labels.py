"""Few labels: draws, and the interval of their mean."""

import numpy as np
import pytest
from scipy import stats

from reproduction.few_labels import draw_errors, t_interval


def clouds(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes around three corners."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, count)
    return (np.eye(3)[y] + 0.5 * generator.normal(size=(count, 3))).astype(np.float32), y


def test_a_few_labels_are_drawn_anew_and_tested_alike() -> None:
    rows = *clouds(600, 0), *clouds(300, 1)
    few, many = (draw_errors(rows, count, draws=4, grid=(0.1, 1.0)) for count in (30, 300))
    assert len(few.errors) == len(few.Cs) == 4
    assert len(set(few.errors)) > 1
    assert few.mean == pytest.approx(np.mean(few.errors))
    assert few.interval[0] < few.mean < few.interval[1]
    assert many.mean < few.mean


def test_the_interval_of_a_mean() -> None:
    values = [0.1, 0.2, 0.4]
    theirs = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert t_interval(values) == pytest.approx(theirs)
