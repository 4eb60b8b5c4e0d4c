"""New rows against neighbours by brute force and scikit-learn's ridge regression; rows far away."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import whatwhere as ww
from whatwhere.classification.neighbours import Neighbours
from whatwhere.classification.new_rows import NewRows


@pytest.mark.parametrize("columns", [5, 70])
def test_scores_are_those_of_neighbours_and_ridge_regression(columns: int) -> None:
    generator = np.random.default_rng(3)
    X = generator.normal(size=(60, columns))
    new = generator.normal(size=(7, columns))
    known = generator.dirichlet(np.full(3, 0.3), 60)
    squares = ((new[:, None] - X) ** 2).sum(2)
    near = []
    for row in squares:
        found = row.argsort()[:4]
        weights = np.exp(-4 * row[found] / row[found[-1]])
        near.append(np.average(known[found], axis=0, weights=weights))
    ridge = Ridge(alpha=0.1 * ((X - X.mean(0)) ** 2).sum(0).mean()).fit(
        X, np.eye(3)[known.argmax(1)]
    )
    linear = ridge.predict(new) - ridge.predict(X).mean(0)
    scale = (ridge.predict(X) - ridge.predict(X).mean(0)).std()
    wanted = np.stack(near) / known.std() + linear / scale
    rows = NewRows(Neighbours(torch.tensor(X)), torch.tensor(known), 4)
    queries = torch.tensor(new)
    found = rows._scores(rows.neighbours.centred(queries), rows.neighbours.nearest(queries, 4))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def two_clouds(count: int = 100) -> ww.GraphClassifier:
    X = np.random.default_rng(0).normal(size=(2 * count, 6))
    X[count:, 0] += 4
    y = np.full(2 * count, -1)
    y[[0, 1, 2]] = 0
    y[[count, count + 1, count + 2]] = 1
    return ww.GraphClassifier().fit(X, y)


def test_new_rows_are_on_average_as_sure_as_known_ones() -> None:
    classifier = two_clouds()
    X = np.random.default_rng(1).normal(size=(200, 6))
    X[100:, 0] += 4
    known = classifier.label_distributions_.max(1).mean()
    assert classifier.predict_proba(X).max(1).mean() == pytest.approx(known, abs=0.05)


def test_a_new_row_far_from_all_others_is_not_sure() -> None:
    classifier = two_clouds()
    near = np.array([[4.0, 0, 0, 0, 0, 0]])
    far = np.array([[40.0, 40, 0, 0, 0, 0]])
    assert classifier.predict_proba(near).max() > 0.9
    assert classifier.predict_proba(far).max() < 0.55
