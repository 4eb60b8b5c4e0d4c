"""The two solvers on the embedded digits, and what neither accepts."""

import numpy as np
import pytest
import torch
from scipy import sparse

import whatwhere as ww
from whatwhere.classification import LinearSVM, fit_svm
from whatwhere.classification.linear_svm import newton
from whatwhere.errors import ImageError, SpecError


def rows(images: ww.data.Images) -> np.ndarray:
    """Pixels blurred and thresholded: many of them 0, so that both kinds of matrix are at home, and quick to fit."""
    v = torch.nn.functional.avg_pool2d(images[:], 3, stride=2).flatten(1)
    return torch.nn.functional.normalize(v.where(v > 0.3, torch.zeros_like(v))).numpy()


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    training, test = ww.data.load("digits"), ww.data.load("digits", split="test")
    assert training.labels is not None
    assert test.labels is not None
    return rows(training), training.labels, rows(test), test.labels


@pytest.mark.parametrize("C", [0.3, 3.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_newton_reaches_liblinears_objective_and_predictions(digits, C: float, kind) -> None:  # type: ignore[no-untyped-def]
    x, y, x_test, _ = digits
    theirs = fit_svm(kind(x), y, C, solver="liblinear")
    ours = fit_svm(kind(x), y, C, solver="newton")
    assert (theirs.solver, ours.solver) == ("liblinear", "newton")
    np.testing.assert_allclose(ours.objective(x, y, C), theirs.objective(x, y, C), rtol=1e-3)
    assert (ours.predict(kind(x_test)) == theirs.predict(kind(x_test))).mean() >= 0.999


def test_the_objective_is_the_one_that_is_written(digits) -> None:  # type: ignore[no-untyped-def]
    x, y = digits[0][:200], digits[1][:200]
    svm = fit_svm(x, y, 2.0)
    w, b = svm.weights[4], svm.intercepts[4]
    hinge = np.maximum(0, 1 - np.where(y == svm.classes[4], 1, -1) * (x @ w + b))
    assert svm.objective(x, y, 2.0)[4] == pytest.approx((w @ w + b * b) / 2 + 2 * (hinge**2).sum())


@pytest.mark.parametrize("solver", ["liblinear", "newton"])
def test_two_classes_with_any_labels(solver: str) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3)).astype(np.float32)
    y = np.where(x[:, 0] > 0.2, 7, -2)
    svm = fit_svm(x, y, 10.0, solver=solver)
    assert svm.classes.tolist() == [-2, 7]
    np.testing.assert_allclose(svm.weights[0], -svm.weights[1])
    assert (svm.predict(x) == y).mean() > 0.95


@pytest.mark.parametrize(("rows", "columns"), [(80, 5), (12, 40)])
def test_newtons_gradient_vanishes(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    t = torch.where(torch.randn(rows, 3, generator=generator) > 0, 1.0, -1.0).double()
    w = newton(x, t, 1.0, tolerance=1e-14).requires_grad_()
    loss = w.square().sum() / 2 + (1 - t * (x @ w)).clamp(min=0).square().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    assert gradient.abs().max() < 1e-5


def test_auto_is_liblinear_on_the_cpu(digits) -> None:  # type: ignore[no-untyped-def]
    assert fit_svm(digits[0][:100], digits[1][:100], 1.0).solver == "liblinear"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_auto_is_newton_on_a_gpu(digits) -> None:  # type: ignore[no-untyped-def]
    x, y, x_test, _ = digits
    theirs, ours = fit_svm(x, y, 3.0), fit_svm(x, y, 3.0, device="cuda")
    assert ours.solver == "newton"
    np.testing.assert_allclose(ours.objective(x, y, 3.0), theirs.objective(x, y, 3.0), rtol=1e-3)
    assert (ours.predict(x_test) == theirs.predict(x_test)).mean() >= 0.999


X, Y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:3], r"4 images and labels of shape \[3\]; expected one label per image"),
        (X, Y[:, None], r"labels of shape \[4, 1\]"),
        (X, np.zeros(4, int), "all 4 labels are 0; expected at least two classes"),
        (X[:0], Y[:0], "an empty set"),
    ],
)
def test_labels_that_no_svm_fits_are_refused(x: np.ndarray, y: np.ndarray, message: str) -> None:
    for solver in ("liblinear", "newton"):
        with pytest.raises(ImageError, match=message):
            fit_svm(x, y, 1.0, solver=solver)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(SpecError, match="C = 0 was given"):
        fit_svm(X, Y, 0)
    with pytest.raises(SpecError, match="solver = 'sgd' was given"):
        fit_svm(X, Y, 1.0, solver="sgd")


def test_predictions_take_the_largest_decision() -> None:
    svm = LinearSVM(np.array([3, 5]), np.array([[1.0, 0], [0, 1.0]]), np.array([0, 0.5]), "by hand")
    np.testing.assert_array_equal(svm.predict(np.array([[1.0, 0], [0.2, 0]])), [3, 5])
