"""Several views: weights follow labels, and joined graphs are sums."""

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.classification.neighbours import Neighbours
from whatwhere.classification.row_graph import RowGraph, joined_graph
from whatwhere.errors import SpecError

COUNT = 120


def two_views(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose first five columns show the class, and whose last five say nothing about it."""
    generator = np.random.default_rng(seed)
    y = np.arange(COUNT) % 3
    good = np.eye(5)[y] * 4 + generator.normal(size=(COUNT, 5))
    bad = 10 * generator.normal(size=(COUNT, 5))
    return np.concatenate([good, bad], 1).astype(np.float32), y


def labels(y: np.ndarray, per_class: int) -> np.ndarray:
    given = np.full(len(y), -1)
    given[: 3 * per_class] = y[: 3 * per_class]
    return given


def fit(per_class: int) -> tuple[ww.GraphClassifier, float]:
    X, y = two_views()
    classifier = ww.GraphClassifier(views={"good": 5, "bad": 5}).fit(X, labels(y, per_class))
    return classifier, float(np.mean(classifier.transduction_ != y))


@pytest.mark.parametrize("per_class", [1, 3, 10])
def test_a_view_that_says_nothing_gets_little_weight(per_class: int) -> None:
    classifier, error = fit(per_class)
    assert classifier.weights_ is not None
    good, bad = classifier.weights_.values
    assert good > 0.75 > bad
    assert error < 0.05


def test_weights_are_estimated_again_with_other_labels() -> None:
    classifier, _ = fit(1)
    X, y = two_views()
    other = np.where(X[:, 5] > 0, 1, 0)  # classes that the second view shows
    given = np.full(COUNT, -1)
    given[:30] = other[:30]
    classifier.refit(given)
    assert classifier.weights_.values[1] > classifier.weights_.values[0]
    classifier.refit(labels(y, 10))
    assert classifier.weights_.values[0] > classifier.weights_.values[1]


def test_labels_that_come_while_views_are_weighed_are_followed_in_between() -> None:
    X, y = two_views()
    of_bad = np.where(np.arange(COUNT) < 30, X[:, 5] > 0, -1)  # shown by the second view
    plain = ww.GraphClassifier(views={"good": 5, "bad": 5}).fit(X, of_bad)
    expected = plain.refit(labels(y, 4)).label_distributions_
    paused = ww.GraphClassifier(views={"good": 5, "bad": 5}).fit(X, of_bad)
    weights = []

    def pause() -> None:
        weights.append(paused.follow(labels(y, 5), quick=True).weights_.values)

    before = paused.weights_.values
    paused.weigh(labels(y, 4), pause)
    assert len(weights) == 3, "before each of the two views and after them"
    assert set(weights) == {before}, "views keep their weights until all were looked at"
    assert paused.weights_.values != before
    found = paused.follow(labels(y, 4)).label_distributions_
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_quick_classes_are_those_of_all_that_labels_say() -> None:
    X, y = two_views()
    classifier = ww.GraphClassifier(views={"good": 5, "bad": 5}).fit(X, labels(y, 2))
    classifier.weigh(labels(y, 3))
    quick = classifier.follow(labels(y, 3), quick=True).transduction_
    assert np.mean(quick == classifier.follow(labels(y, 3)).transduction_) > 0.98


def test_neighbours_of_one_view_alone_are_shrunk_where_the_other_sees_two_classes() -> None:
    """The second view says nothing: most of its neighbours are of other classes."""
    X, y = two_views()
    graphs = ww.GraphClassifier(views={"good": 5, "bad": 5}).fit(X, labels(y, 1)).view_graphs_
    same = torch.from_numpy(y[:, None] == y)

    def between(graph: Tensor) -> float:
        weights = graph.to_dense()
        return float(weights[~same].sum() / weights.sum())

    bad = graphs.views[1]
    assert between(bad.even_graph) > 0.6
    assert between(graphs.supported[1]) < 0.8 * between(bad.even_graph)
    weights = list(graphs.start.weights.values)
    expected = sum(w * dense(part) for w, part in zip(weights, graphs.supported, strict=True))
    np.testing.assert_allclose(dense(graphs.start.graph.graph), expected, atol=1e-12)


def test_new_rows_are_joined_as_the_known_ones() -> None:
    classifier, _ = fit(10)
    X, y = two_views(1)
    assert np.mean(classifier.predict(X) != y) < 0.1
    joined = classifier.join_(torch.from_numpy(X))
    direct = classifier.new_rows_(joined).numpy()
    np.testing.assert_allclose(classifier.predict_proba(X), direct)


def test_one_class_and_one_row_keep_equal_weights() -> None:
    X, _ = two_views()
    one = ww.GraphClassifier(views={"good": 5, "bad": 5}).fit(X, np.where(np.arange(COUNT), -1, 2))
    assert one.weights_.values == (0.5, 0.5)
    assert (one.transduction_ == 2).all()
    ww.GraphClassifier(views={"good": 5, "bad": 5}).fit(X[:1], [1])


def test_views_with_neighbours_of_others_count_more_before_there_are_labels() -> None:
    generator = np.random.default_rng(0)
    y = np.arange(COUNT) % 3
    good = [np.eye(5)[y] * 4 + generator.normal(size=(COUNT, 5)) for _ in range(3)]
    X = np.concatenate([*good, 10 * generator.normal(size=(COUNT, 5))], 1).astype(np.float32)
    views = {"first": 5, "second": 5, "third": 5, "bad": 5}
    classifier = ww.GraphClassifier(views=views).fit(X, np.zeros(COUNT))
    *of_good, of_bad = classifier.weights_.values
    assert min(of_good) > 2 * of_bad


def test_the_columns_of_the_views_must_add_up() -> None:
    X, y = two_views()
    with pytest.raises(SpecError):
        ww.GraphClassifier(views={"good": 5, "bad": 4}).fit(X, y)


def even(graph: RowGraph) -> np.ndarray:
    """D^-½ W D^-½ by NumPy."""
    W = dense(graph.graph)
    root = 1 / np.sqrt(W.sum(1))
    return root[:, None] * W * root


def dense(graph: Tensor) -> np.ndarray:
    return np.asarray(graph.to_dense())


def test_a_joined_graph_is_the_weighted_sum_of_even_graphs() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(30, 4, generator=generator) for _ in range(3)]
    graphs = [RowGraph.of(Neighbours(part), 5) for part in rows]
    added = [graph.even_graph for graph in graphs]
    joined = joined_graph(graphs, added, [0.7, 0.3, 0.0], torch.cat(rows, 1))
    expected = 0.7 * even(graphs[0]) + 0.3 * even(graphs[1])
    np.testing.assert_allclose(dense(joined.graph), expected, atol=1e-12)
    distances = 0.7 * graphs[0].distances + 0.3 * graphs[1].distances
    torch.testing.assert_close(joined.distances, distances)
