"""The SVM against scikit-learn's LIBLINEAR on the embedded digits, and what it does not accept."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.svm import LinearSVC

import whatwhere as ww
from whatwhere.classification import LinearSVM, fit_svm, linear_svm, protocol
from whatwhere.classification.linear_svm import SolverSettings, newton, start_weights
from whatwhere.classification.protocol import (
    choose,
    evaluate,
    folds,
    wilson,
)
from whatwhere.errors import ImageError, SpecError


def rows(images: ww.data.Images) -> np.ndarray:
    """Pixels blurred and thresholded: many of them 0, so that both kinds of matrix are at home,
    and quick to fit."""
    v = torch.nn.functional.avg_pool2d(images[:], 3, stride=2).flatten(1)
    return torch.nn.functional.normalize(v.where(v > 0.3, torch.zeros_like(v))).numpy()


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    training, test = ww.data.load("digits"), ww.data.load("digits", split="test")
    assert training.labels is not None
    assert test.labels is not None
    return rows(training), training.labels, rows(test), test.labels


def objective(svm: LinearSVM, x: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    """½ ‖w‖² + C Σ max(0, 1 - t wᵀx)² of each class."""
    slack = np.maximum(0, 1 - np.where(y[:, None] == svm.classes, 1, -1) * svm.decision(x))
    return (np.square(svm.weights).sum(1) + np.square(svm.intercepts)) / 2 + C * np.square(
        slack
    ).sum(0)


@pytest.mark.parametrize("C", [0.3, 3.0])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_the_objective_and_the_predictions_are_liblinears(digits, C: float, kind) -> None:  # type: ignore[no-untyped-def]
    x, y, x_test, _ = digits
    svc = LinearSVC(C=C, dual=False, tol=1e-4).fit(x, y)
    theirs, ours = LinearSVM(svc.classes_, svc.coef_, svc.intercept_), fit_svm(kind(x), y, C)
    np.testing.assert_allclose(objective(ours, x, y, C), objective(theirs, x, y, C), rtol=1e-3)
    assert (ours.predict(kind(x_test)) == theirs.predict(x_test)).mean() >= 0.999


def test_two_classes_with_any_labels() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3)).astype(np.float32)
    y = np.where(x[:, 0] > 0.2, 7, -2)
    svm = fit_svm(x, y, 10.0)
    assert svm.classes.tolist() == [-2, 7]
    np.testing.assert_allclose(svm.weights[0], -svm.weights[1])
    assert (svm.predict(x) == y).mean() > 0.95


@pytest.mark.parametrize(("rows", "columns"), [(80, 5), (12, 40)])
def test_newtons_gradient_vanishes(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    t = torch.where(torch.randn(rows, 3, generator=generator) > 0, 1.0, -1.0).double()
    w = newton(x, t, 1.0, how=SolverSettings(tolerance=1e-14)).requires_grad_()
    loss = w.square().sum() / 2 + (1 - t * (x @ w)).clamp(min=0).square().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    assert gradient.abs().max() < 1e-5


@pytest.fixture
def solves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one entry for every step of Newton's method."""
    seen: list[int] = []
    real = linear_svm.conjugate_gradient

    def counted(*arguments, **options):  # type: ignore[no-untyped-def]
        seen.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(linear_svm, "conjugate_gradient", counted)
    return seen


@pytest.mark.parametrize("columns", [6, 150])  # 150: solved in the space of the rows
def test_a_start_saves_steps_and_leaves_the_minimum(solves: list[int], columns: int) -> None:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 70)
    x = (np.eye(columns)[y] + 0.5 * generator.normal(size=(70, columns))).astype(np.float32)
    plain = fit_svm(x, y, 3.0)
    steps_from_zero = len(solves)
    again = fit_svm(x, y, 3.0, start=plain)
    assert len(solves) == steps_from_zero + 1, "one step finds that there is nothing to gain"
    far = fit_svm(x, y, 3.0, start=fit_svm(x[:20], y[:20], 0.1))
    for svm in (again, far):
        np.testing.assert_allclose(
            objective(svm, x, y, 3.0), objective(plain, x, y, 3.0), rtol=1e-5
        )


def test_a_class_that_the_start_does_not_have_starts_from_0() -> None:
    x, y = clouds(90, 0.3)
    x, y = x[np.argsort(y, kind="stable")], np.sort(y)
    two = fit_svm(x[y != 1], y[y != 1], 1.0)
    svm, plain = fit_svm(x, y, 1.0, start=two), fit_svm(x, y, 1.0)
    assert svm.classes.tolist() == [0, 1, 2]
    np.testing.assert_allclose(objective(svm, x, y, 1.0), objective(plain, x, y, 1.0), rtol=1e-5)
    np.testing.assert_array_equal(
        start_weights(two, svm.classes, 3).T,
        [
            [*two.weights[0], two.intercepts[0]],
            [0] * 4,
            [*two.weights[1], two.intercepts[1]],
        ],
    )


def test_a_start_of_two_classes_is_that_of_the_second(solves: list[int]) -> None:
    x, y = clouds(60, 0.3)
    x, y = x[y != 1], y[y != 1]
    svm = fit_svm(x, y, 1.0)
    solves.clear()
    fit_svm(x, y, 1.0, start=svm)
    assert len(solves) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_same(digits) -> None:  # type: ignore[no-untyped-def]
    x, y, x_test, _ = digits
    first, second = fit_svm(x, y, 3.0), fit_svm(x, y, 3.0, device="cuda")
    np.testing.assert_allclose(objective(second, x, y, 3.0), objective(first, x, y, 3.0), rtol=1e-3)
    assert (second.predict(x_test) == first.predict(x_test)).mean() >= 0.999


X, Y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:3], r"4 images and labels of shape \[3\]; expected one label per image"),
        (X, Y[:, None], r"labels of shape \[4, 1\]"),
        (X, np.zeros(4, int), "All 4 labels are 0; expected at least two classes"),
        (X[:0], Y[:0], "an empty set"),
    ],
)
def test_labels_that_no_svm_fits_are_refused(x: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        fit_svm(x, y, 1.0)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(SpecError, match="Got C = 0"):
        fit_svm(X, Y, 0)
    with pytest.raises(ImageError, match="from an SVM of 3 columns; expected 4, as in the fit"):
        fit_svm(X, Y, 1.0, start=fit_svm(X[:, :3], Y, 1.0))


def test_predictions_take_the_largest_decision() -> None:
    svm = LinearSVM(np.array([3, 5]), np.array([[1.0, 0], [0, 1.0]]), np.array([0, 0.5]))
    np.testing.assert_array_equal(svm.predict(np.array([[1.0, 0], [0.2, 0]])), [3, 5])
    for other in (np.zeros((2, 3)), torch.zeros(2, 3), np.zeros(2), [1.0, 0.0]):
        with pytest.raises(ImageError, match=r"; expected \(N, 2\), as in the fit"):
            svm.predict(other)


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


def test_every_fit_starts_from_that_of_the_same_images(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clouds(120, 0.3)
    fits: list[tuple[int, float, LinearSVM | None, LinearSVM]] = []
    real = protocol.fit_svm

    def recorded(x, y, C, *, start=None, device="cpu"):  # type: ignore[no-untyped-def]
        svm = real(x, y, C, start=start, device=device)
        fits.append((len(x), C, start, svm))
        return svm

    monkeypatch.setattr(protocol, "fit_svm", recorded)
    turns = [np.arange(120) < 20, np.arange(120) >= 90]
    best, trials = choose(x, y, grid=(1.0, 0.1), validation=turns)
    assert [(size, C) for size, C, _, _ in fits] == [(100, 0.1), (90, 0.1), (100, 1.0), (90, 1.0)]
    svms = [svm for *_, svm in fits]
    assert [start for _, _, start, _ in fits[:2]] == [None, None]
    assert fits[2][2] is svms[0]
    assert fits[3][2] is svms[1]
    assert trials[0].svm is svms[1]
    assert trials[1].svm is svms[3]
    evaluate(x, y, x, y, best.C, start=best.svm)
    assert fits[-1][2] is best.svm


def test_only_validation_images_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the classifier is fitted to and what it is judged by never overlap, and together are
    the training images."""
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


def test_errors_are_counted_and_every_training_image_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
