"""The graph classifier: scikit-learn's checks, classes and labels of every kind, and inputs that
are special."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

import whatwhere as ww
from whatwhere.classification import calibration, poisson
from whatwhere.classification.ridge import LabelRegression
from whatwhere.classification.stability import (
    StabilitySettings,
    expected_accuracy,
    stability,
)
from whatwhere.errors import ImageError, SpecError

MINUS_ONE = {
    "check_classifiers_classes": (
        "has -1 as a class; scikit-learn exempts its own semi-supervised ones by name"
    )
}


@parametrize_with_checks(
    [ww.GraphClassifier(), ww.GraphClassifier(n_neighbors=3, class_prior="uniform")],
    expected_failed_checks=lambda estimator: MINUS_ONE,
)
def test_scikit_learn_estimator_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


def clouds(*centres: float, count: int = 40, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(len(centres), count, 3))
    return (noise + np.array(centres)[:, None, None]).reshape(-1, 3)


def labels_at(count: int, labels: dict[int, int]) -> np.ndarray:
    y = np.full(count, -1)
    for row, label in labels.items():
        y[row] = label
    return y


def test_one_label_of_each_class_is_enough_where_classes_are_apart() -> None:
    X, truth = clouds(0, 6, 12), np.repeat([5, 2, 9], 40)
    y = labels_at(120, {3: 5, 44: 2, 90: 9})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the graph may be in three parts
        classifier = ww.GraphClassifier().fit(X, y)
    assert classifier.classes_.tolist() == [2, 5, 9]
    assert (classifier.transduction_ == truth).all()
    new = clouds(0, 6, 12, count=10, seed=1)
    assert (classifier.predict(new) == np.repeat([5, 2, 9], 10)).all()
    probabilities = classifier.predict_proba(new)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert probabilities.min() >= 0


def test_few_labels_of_handwritten_digits_beat_the_nearest_labelled_row() -> None:
    X, truth = load_digits(return_X_y=True)
    y = np.full(len(truth), -1)
    chosen = ww.data.few_labels(truth, 20, seed=0)
    y[chosen] = truth[chosen]
    classifier = make_pipeline(Normalizer(), ww.GraphClassifier()).fit(X, y)
    errors = np.mean(classifier[-1].transduction_ != truth)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    nearest = truth[chosen][(unit @ unit[chosen].T).argmax(1)]
    assert errors < 0.15
    assert errors < 0.6 * np.mean(nearest != truth)


def test_labelled_rows_keep_their_class() -> None:
    # row 2 is among class 0
    X, y = (
        clouds(0, 8),
        labels_at(80, {0: 0, 1: 0, 2: 1, 50: 1, 60: 1, 61: 1}),
    )
    classifier = ww.GraphClassifier().fit(X, y)
    assert classifier.transduction_[2] == 1
    assert classifier.label_distributions_[2].tolist() == [0, 1]


def test_all_rows_labelled() -> None:
    X, y = clouds(0, 8), np.repeat([0, 1], 40)
    classifier = ww.GraphClassifier().fit(X, y)
    assert (classifier.transduction_ == y).all()
    assert (classifier.predict(clouds(0, 8, count=5, seed=1)) == np.repeat([0, 1], 5)).all()


def test_one_class_alone_and_one_row_alone() -> None:
    classifier = ww.GraphClassifier().fit(clouds(0), labels_at(40, {7: 4}))
    assert (classifier.transduction_ == 4).all()
    assert (classifier.predict_proba(clouds(0, count=3)) == 1).all()
    assert ww.GraphClassifier().fit([[0.0, 1.0]], [3]).predict([[5.0, 5.0]]).tolist() == [3]


def test_no_label_raises() -> None:
    with pytest.raises(ImageError, match="Every label is -1"):
        ww.GraphClassifier().fit(clouds(0), np.full(40, -1))


def test_text_as_labels() -> None:
    X, y = clouds(0, 8), np.full(80, -1, dtype=object)
    y[3], y[50] = "cat", "dog"
    classifier = ww.GraphClassifier().fit(X, y)
    assert (classifier.transduction_ == np.repeat(["cat", "dog"], 40)).all()
    words = np.repeat(["cat", "dog"], 40)
    assert (ww.GraphClassifier().fit(X, words).predict(X) == words).all()


def test_copies_of_rows_have_the_same_class() -> None:
    X = np.concatenate([np.repeat(clouds(0, count=1), 30, 0), clouds(4, 9)])
    y = labels_at(110, {0: 1, 40: 2, 100: 3})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = ww.GraphClassifier(n_neighbors=5).fit(X, y)
    assert (classifier.transduction_[:30] == 1).all()
    assert classifier.predict(X[:1]).tolist() == [1]


def test_constant_rows_give_probabilities() -> None:
    classifier = ww.GraphClassifier().fit(np.ones((30, 4)), labels_at(30, {0: 0, 1: 1}))
    probabilities = classifier.predict_proba(np.ones((2, 4)))
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert np.isfinite(classifier.label_distributions_).all()


def test_parts_of_the_graph_without_a_label_are_reported() -> None:
    X, y = clouds(0, 3, 100), labels_at(120, {0: 0, 41: 1, 42: 1})
    with pytest.warns(UserWarning, match="40 of 120 rows"):
        classifier = ww.GraphClassifier().fit(X, y)
    np.testing.assert_allclose(classifier.label_distributions_[80:], [[1 / 3, 2 / 3]] * 40)
    with pytest.warns(UserWarning, match="40 of 120 rows"):
        classifier = ww.GraphClassifier(class_prior=[3, 1]).fit(X, y)
    np.testing.assert_allclose(classifier.label_distributions_[80:], [[0.75, 0.25]] * 40)


def test_nan_and_infinity_raise() -> None:
    X = clouds(0, 8)
    for bad in (np.nan, np.inf):
        X[3, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            ww.GraphClassifier().fit(X, np.repeat([0, 1], 40))


@pytest.mark.parametrize("prior", ["even", [1.0], [1.0, -1.0], [1.0, np.nan], [[0.5, 0.5]]])
def test_impossible_priors_raise(prior) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match="class_prior"):
        ww.GraphClassifier(class_prior=prior).fit(clouds(0, 8), np.repeat([0, 1], 40))


def test_fewer_rows_than_neighbours() -> None:
    classifier = ww.GraphClassifier(n_neighbors=50).fit(
        [[0.0], [0.1], [5.0], [5.1]], [0, -1, 1, -1]
    )
    assert classifier.transduction_.tolist() == [0, 0, 1, 1]
    with pytest.raises(SpecError, match="n_neighbors"):
        ww.GraphClassifier(n_neighbors=0).fit([[0.0], [1.0]], [0, 1])


def test_one_and_two_threads_give_the_same_answer() -> None:
    X, truth = load_digits(return_X_y=True)
    X = np.concatenate([X, X[:100]])  # with copies
    y = np.full(len(X), -1)
    chosen = ww.data.few_labels(truth, 30, seed=1)
    y[chosen] = truth[chosen]
    threads, found = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        classifier = clone(ww.GraphClassifier(class_prior="uniform")).fit(X, y)
        found.append(
            (
                classifier.transduction_,
                classifier.predict(X + 0.01),
                classifier.label_distributions_,
            )
        )
    torch.set_num_threads(threads)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
    np.testing.assert_allclose(found[0][2], found[1][2], atol=1e-6)


def test_no_class_swallows_the_others_where_classes_touch() -> None:
    """Regions that settle without a bound give one class nearly all of these rows."""
    generator = np.random.default_rng(0)
    truth = np.repeat(np.arange(6), 50)
    widths = np.linspace(0.9, 2.1, 6)[truth]
    X = 4 * np.eye(6, 20)[truth] + widths[:, None] * generator.normal(size=(300, 20))
    errors = []
    nearest = []
    for seed in range(3):
        labelled = ww.data.few_labels(truth, 18, seed)
        others = np.setdiff1d(np.arange(300), labelled)
        y = np.full(300, -1)
        y[labelled] = truth[labelled]
        found = ww.GraphClassifier().fit(X, y).transduction_
        assert np.bincount(found).max() < 100, "twice the size of a class"
        errors.append(np.mean(found[others] != truth[others]))
        squares = np.square(X[others][:, None] - X[labelled]).sum(2)
        nearest.append(np.mean(truth[labelled][squares.argmin(1)] != truth[others]))
    assert np.mean(errors) < np.mean(nearest) - 0.05


def test_the_score_of_labelled_rows_leaves_the_others_out() -> None:
    X = np.array([[0.0], [0.1], [5.0], [5.1]])
    classifier = ww.GraphClassifier(n_neighbors=1).fit(X, [0, -1, 1, -1])
    assert ww.labelled_score(classifier, X, [0, -1, 0, -1]) == 0.5
    assert classifier.score(X, [0, -1, 0, -1]) == 0.25, "-1 is counted as wrong"
    assert np.isnan(ww.labelled_score(classifier, X, [-1, -1, -1, -1]))


def test_classes_are_equally_strong_whatever_the_number_of_their_labels() -> None:
    """Against dense solutions, in which the labels of every class add up to the same strength."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(80, 3))
    given = np.full(80, -1)
    given[:9] = [0, 0, 0, 0, 0, 0, 1, 1, 2]
    classifier = ww.GraphClassifier(n_neighbors=6).fit(rows, given)
    graph = classifier.graph_
    assert graph is not None
    weights = graph.to_dense()
    degree = torch.diag(weights.sum(1))

    def potentials(labelled: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        classes = F.one_hot(labels, 3).double()
        strengths = (classes - classes.mean(0)) / (3 * classes.mean(0))
        sources = torch.zeros(80, 3, dtype=torch.float64)
        sources[labelled] = strengths
        tau = max(poisson.POISSON.tau, len(labelled) / 80)
        return torch.linalg.solve((1 + tau) * degree - weights, sources)

    labelled = torch.arange(9)
    labels = torch.from_numpy(given[:9])
    folds = calibration.folds(labels)
    regression = LabelRegression(classifier.neighbours_.rows, 9, 3)
    u = potentials(labelled, labels)
    length = calibration.usual_length(u)
    held_out = torch.cat([potentials(f.kept, labels[f.kept])[f.held_out] for f in folds])
    held_out = calibration.scaled(held_out, length)
    held_out = held_out + regression.held_out_scores(labelled, labels, folds)
    scores = calibration.scaled(u, length) + regression.scores(labelled, labels)
    assert classifier.row_graph_ is not None
    how = StabilitySettings()
    stable = stability(classifier.row_graph_, scores.argmax(1), 3, 9, how)
    usual = calibration.usual_sharpness(scores[9:], expected_accuracy(stable, 3, how))
    known = calibration.calibrate(held_out, labels[torch.cat([f.held_out for f in folds])], usual)
    far = calibration.usual_distance(classifier.distances_)
    expected = calibration.mix_isolated(known.probabilities(scores), classifier.distances_, far)
    found = classifier.label_distributions_[9:]
    np.testing.assert_allclose(found, expected[9:], atol=2e-3)
