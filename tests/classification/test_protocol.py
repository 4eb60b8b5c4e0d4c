"""The protocol: what is chosen by what, what is counted, and that the test images are seen once."""

import numpy as np
import pytest
from scipy import stats

from whatwhere.classification import protocol
from whatwhere.classification.protocol import (
    choose,
    evaluate,
    folds,
    wilson,
)
from whatwhere.errors import ImageError


def clouds(count: int, spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes around three corners."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, count)
    return (np.eye(3)[y] + spread * generator.normal(size=(count, 3))).astype(np.float32), y


def test_folds_hold_every_class_evenly() -> None:
    y = np.repeat([0, 1, 2], [60, 31, 7])
    fold = folds(y)
    assert np.ptp(np.bincount(fold)) <= 1
    for label in range(3):
        assert np.ptp(np.bincount(fold[y == label], minlength=6)) <= 1
    assert (fold != np.sort(fold)).any()
    np.testing.assert_array_equal(fold, folds(y))


def test_the_smallest_of_the_best_is_chosen() -> None:
    x, y = clouds(300, 0.3)
    best, trials = choose(x, y, grid=(1.0, 0.1, 1e-7))
    assert [trial.C for trial in trials] == [1e-7, 0.1, 1.0]
    assert best == min(trials, key=lambda trial: (trial.error, trial.C))
    assert best.error < trials[0].error


def test_only_validation_images_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the classifier is fitted to and what it is judged by never overlap, and together are the training images."""
    x, y = clouds(120, 0.3)
    x = np.column_stack([x, np.arange(120)]).astype(np.float32) / [1, 1, 1, 1e6]
    seen: list[tuple[set[float], set[float]]] = []
    real = protocol.fit_svm

    class Watched:
        def __init__(self, x, y, C, **options):  # type: ignore[no-untyped-def]
            self.svm, self.fitted = real(x, y, C), set(x[:, 3])

        def predict(self, x):  # type: ignore[no-untyped-def]
            seen.append((self.fitted, set(x[:, 3])))
            return self.svm.predict(x)

    monkeypatch.setattr(protocol, "fit_svm", Watched)
    choose(x, y, grid=(1.0,), validation=[folds(y) == k for k in range(6)])
    assert len(seen) == 6
    for fitted, judged in seen:
        assert not fitted & judged
        assert len(fitted | judged) == 120
    assert len(set.union(*(judged for _, judged in seen))) == 120


def test_errors_are_counted_and_every_training_image_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    (x, y), (x_test, y_test) = clouds(300, 0.4), clouds(200, 0.4, seed=1)
    fitted: list[int] = []
    real = protocol.fit_svm

    def counted(x, *rest, **keywords):  # type: ignore[no-untyped-def]
        fitted.append(x.shape[0])
        return real(x, *rest, **keywords)

    monkeypatch.setattr(protocol, "fit_svm", counted)
    score = evaluate(x, y, x_test, y_test, 1.0)
    assert fitted == [300]
    predicted = real(x, y, 1.0).predict(x_test)
    assert score.errors == (predicted != y_test).sum() > 0
    assert score.error == score.errors / 200
    confusion = np.array(score.confusion)
    assert confusion[0, 1] == ((y_test == 0) & (predicted == 1)).sum()
    assert confusion.sum() == 200
    assert confusion.trace() == 200 - score.errors
    assert score.interval[0] < score.error < score.interval[1]


def test_a_class_that_only_the_test_has_counts_as_errors() -> None:
    x, y = clouds(100, 0.1)
    score = evaluate(x, y, x[:10], np.full(10, 9), 1.0)
    assert score.classes == (0, 1, 2, 9)
    assert score.error == 1


def test_intervals() -> None:
    for errors, images in ((0, 50), (3, 200), (50, 50)):
        low, high = wilson(errors, images)
        theirs = stats.binomtest(errors, images).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


def test_labels_that_do_not_match_are_refused() -> None:
    x, y = clouds(30, 0.3)
    with pytest.raises(ImageError, match="expected one label per image"):
        choose(x, y[:-1])
    with pytest.raises(ImageError, match="expected at least two classes"):
        choose(x, np.zeros(30, int))
    with pytest.raises(ImageError, match="30 test images and 29 labels"):
        evaluate(x, y, x, y[:-1], 1.0)
    with pytest.raises(ImageError, match="0 test images"):
        evaluate(x, y, x[:0], y[:0], 1.0)
