"""Ridge regressions against scikit-learn's, and what they add to the graph."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import whatwhere as ww
from whatwhere.classification.calibration import folds
from whatwhere.classification.ridge import LabelRegression, RegressionSettings, ridge_weights


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)], ids=["many rows", "few rows"])
def test_weights_are_those_of_scikit_learn(shape: tuple[int, int]) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=shape)
    rows -= rows.mean(0)
    targets = generator.normal(size=(shape[0], 3))
    expected = Ridge(alpha=2.5, fit_intercept=False).fit(rows, targets).coef_.T
    found = ridge_weights(torch.tensor(rows), torch.tensor(targets), torch.tensor(2.5))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_scores_are_a_ridge_regression_on_the_labels() -> None:
    generator = np.random.default_rng(1)
    rows = torch.tensor(generator.normal(3, 1, size=(50, 8)), dtype=torch.float32)
    labelled = torch.tensor([3, 8, 20, 21, 30, 44])
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    regression = LabelRegression(rows, len(labels), 3)

    def expected(of: torch.Tensor, with_labels: torch.Tensor) -> np.ndarray:
        known = rows[labelled[with_labels]].double().numpy()
        classes = np.eye(3)[labels[with_labels]]
        squares = ((known - known.mean(0)) ** 2).sum()
        model = Ridge(alpha=regression.how.penalty * squares / len(known)).fit(known, classes)
        found = model.predict(rows[of].double().numpy())
        return regression.weight * (found - found.mean(1, keepdims=True))

    every = torch.arange(50)
    scores = regression.scores(labelled, labels)
    np.testing.assert_allclose(scores, expected(every, torch.arange(6)), atol=1e-5)
    parts = [expected(labelled[fold.held_out], fold.kept) for fold in folds(labels)]
    held_out = regression.held_out_scores(labelled, labels, folds(labels))
    np.testing.assert_allclose(held_out, np.concatenate(parts), atol=1e-5)


def test_the_regression_counts_more_with_more_labels() -> None:
    weights = [LabelRegression(torch.zeros(1, 1), 5 * count, 5).weight for count in (1, 3, 10, 100)]
    assert weights == sorted(weights)
    assert weights[0] < RegressionSettings().weight / 10
    assert weights[2] == pytest.approx(RegressionSettings().weight / 2)


def test_labels_help_where_neighbours_say_little() -> None:
    """In forty columns, three of which differ, neighbours are of any class; a linear function is
    not misled."""
    errors = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        y = np.repeat(np.arange(3), 200)
        rows = generator.normal(size=(600, 40))
        rows[:, :3] += 1.2 * np.eye(3)[y]
        given = np.full(600, -1)
        for label in range(3):
            chosen = generator.permutation(np.flatnonzero(y == label))[:20]
            given[chosen] = label
        classifier = ww.GraphClassifier().fit(rows, given)
        rest = given < 0
        errors.append(np.mean(classifier.transduction_[rest] != y[rest]))
    assert np.mean(errors) < 0.505  # 0.529 without the regression
