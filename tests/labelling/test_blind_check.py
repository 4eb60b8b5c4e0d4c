"""A blind check measures the error."""

import numpy as np
import pytest

from whatwhere.labelling.blind_check import BlindCheck, CheckSettings, MeasuredError
from whatwhere.labelling.neighbourhood import Spread


def spread(count: int, wrong: float, seed: int = 0) -> tuple[Spread, np.ndarray]:
    """Predictions of two classes, of which a share is wrong, and the truth."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 2, count)
    said = np.where(random.random(count) < wrong, 1 - truth, truth)
    return Spread(("a", "b"), np.eye(2)[said]), np.array(["a", "b"])[truth]


def test_it_draws_among_pictures_without_a_label() -> None:
    predictions, _ = spread(100, 0.1)
    check = BlindCheck.draw(predictions, dict.fromkeys(range(60), "a"), seed=0)
    assert len(set(check.rows)) == 30
    assert min(check.rows) >= 60
    again = BlindCheck.draw(predictions, dict.fromkeys(range(60), "a"), seed=1)
    assert again.rows != check.rows
    assert len(BlindCheck.draw(predictions, dict.fromkeys(range(95), "a"), seed=0).rows) == 5
    assert BlindCheck.draw(predictions, dict.fromkeys(range(100), "a"), seed=0).rows == []


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    held = []
    for seed in range(300):
        predictions, truth = spread(200, 0.2, seed)
        error = (np.array(["a", "b"])[predictions.probabilities.argmax(1)] != truth).mean()
        check = BlindCheck.draw(predictions, {}, seed, CheckSettings(pictures=30))
        for row in check.rows:
            assert not check.is_done
            check.answer(row, str(truth[row]))
        assert check.is_done
        result = check.result()
        assert result is not None
        low, high = result.interval
        held.append(low <= error <= high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.03)


def test_answers_that_are_taken_back_or_not_sure_do_not_count() -> None:
    predictions, _ = spread(40, 0.0)
    check = BlindCheck.draw(predictions, {}, 0, CheckSettings(pictures=4))
    first, second, third, _ = check.rows
    assert check.result() is None
    check.answer(first, "zebra")
    check.answer(second, "not sure")
    check.answer(third, "a")
    check.answer(third, None)
    check.answer(-1, "a")
    result = check.result()
    assert result == MeasuredError(wrong=1, pictures=1, labels=0, left=40)
    assert check.as_json()["answers"] == {first: "zebra", second: "not sure"}


def test_when_all_pictures_are_checked_the_error_is_known() -> None:
    low, high = MeasuredError(wrong=3, pictures=30, labels=10, left=30).interval
    assert (low, high) == (0.1, 0.1)
    words = MeasuredError(wrong=3, pictures=30, labels=10, left=3000).words
    assert words.startswith("Measured: 10 % wrong, between 3 and 26 % (3 of 30 pictures")
    assert words.endswith("Label more pictures, and check again.")
    words = MeasuredError(wrong=1, pictures=30, labels=10, left=3000).words
    assert words.startswith("Done: 3 % wrong, between 1 and 17 %")
    assert words.endswith("Save the classifier, or export the classes.")
