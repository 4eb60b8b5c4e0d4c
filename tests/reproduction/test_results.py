"""The numbers that tables take from results."""

import pytest

from reproduction.few_labels import FewLabels
from reproduction.results import EpochRecord, FewLabelResult, TrainingResult, mean_and_deviation, value_of


def epoch(layer, cost, **more):
    return EpochRecord(layer=layer, epoch=1, cost=cost, nonzeros=2.0, seconds=1.0, engine="cpu", **more)


def test_a_training_counts_by_the_epochs_of_its_top_layer():
    trained = TrainingResult(history=(epoch(1, 9.0), epoch(2, 5.0), epoch(2, 4.0)), training_seconds=2.0)
    assert trained.series("cost") == [5.0, 4.0]
    assert value_of(trained, "cost") == 4.0
    assert value_of(trained, "nonzeros") == 2.0


def test_what_was_not_recorded_is_an_error():
    trained = TrainingResult(history=(epoch(1, 9.0, penalty=1.0), epoch(1, 8.0)), training_seconds=2.0)
    with pytest.raises(ValueError, match="no record of its penalty"):
        trained.series("penalty")


def test_few_labels_count_by_the_mean_of_their_draws():
    draws = FewLabels(100, (0.1, 0.3), (1.0, 1.0), 0.2, (0.1, 0.3))
    assert value_of(FewLabelResult(draws=draws, dimensions=1, density=1.0), "error") == 0.2


def test_a_single_value_has_no_deviation():
    assert mean_and_deviation([2.0]) == (2.0, None)
    mean, deviation = mean_and_deviation([1.0, 3.0])
    assert (mean, deviation) == (2.0, pytest.approx(2**0.5))
