"""One label a class, of which one lies among the rows of another class."""

import warnings

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.classification.even_classes import EvenSettings, borders, even_regions
from whatwhere.classification.label_scores import label_scores
from whatwhere.errors import EvenClassesWarning

CENTRES = np.array([[0.0, 0.0], [6.0, 0.0], [6.0, 3.6]])


def clouds(*sizes: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    return np.concatenate(
        [generator.normal(at, 0.8, (n, 2)) for at, n in zip(CENTRES, sizes, strict=True)]
    )


def labels_near(X: np.ndarray, places: np.ndarray) -> np.ndarray:
    """One label a class, each of the free row that is nearest to a place."""
    given = np.full(len(X), -1)
    for label, at in enumerate(places):
        given[np.where(given == -1, np.square(X - at).sum(1), np.inf).argmin()] = label
    return given


def test_classes_are_even_where_a_label_lies_among_the_rows_of_another_class() -> None:
    """Two labels lie in the first cloud; the second has none, yet its rows get its class."""
    X = clouds(200, 200, 200)
    astray = CENTRES.copy()
    astray[1] = 0.8, 0.0
    with pytest.warns(EvenClassesWarning):
        found = ww.GraphClassifier().fit(X, labels_near(X, astray))
    assert found.label_distributions_.sum(1) == pytest.approx(1)
    sizes = np.bincount(found.transduction_)
    assert sizes.min() > 600 / 3 / 1.4


@pytest.mark.parametrize("sizes", [(200, 200, 200), (400, 40, 160)])
def test_labels_at_the_centres_are_fine(sizes: tuple[int, int, int]) -> None:
    X = clouds(*sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ww.GraphClassifier().fit(X, labels_near(X, CENTRES)).transduction_
    assert np.mean(found == np.repeat(range(3), sizes)) > 0.95


def test_even_classes_that_are_not_well_apart_are_not_taken() -> None:
    X = clouds(200, 200, 200)
    astray = CENTRES.copy()
    astray[1] = 0.8, 0.0
    given = labels_near(X, astray)
    with pytest.warns(EvenClassesWarning):
        graph = ww.GraphClassifier().fit(X, given).row_graph_
    assert graph is not None
    rows = torch.from_numpy(np.flatnonzero(given != -1))
    labels = torch.from_numpy(given[given != -1])
    found = label_scores(graph, rows, labels, 3).all_rows.argmax(1)
    assert even_regions(graph, rows, labels, found) is not None
    assert even_regions(graph, rows, labels, found, EvenSettings(most=1e-4)) is None


def test_borders() -> None:
    # a chain of four rows, cut in the middle: each half has two ends within, one out
    graph = torch.diag(torch.ones(3), 1) + torch.diag(torch.ones(3), -1)
    found = torch.tensor([0, 0, 1, 1])
    assert borders(graph.double().to_sparse_csr(), found, 2) == pytest.approx(2 / 3)
