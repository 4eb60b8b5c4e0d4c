"""The smoothest functions on a graph, compared with dense linear algebra."""

import numpy as np
import pytest
from scipy import sparse

from whatwhere.classification import spectrum
from whatwhere.classification.spectrum import GAMMA, TAU, Spectrum


def ring(count: int = 30) -> sparse.csr_array:
    """Rows on a ring, each joined to its two neighbours, with different weights."""
    weights = np.zeros((count, count))
    for i in range(count):
        weights[i, (i + 1) % count] = weights[(i + 1) % count, i] = 1 + 0.3 * (i % 3)
    return sparse.csr_array(weights)


def test_a_label_reduces_the_variance_as_conditioning_a_gaussian_does() -> None:
    graph = ring()
    found = Spectrum(graph)
    prior = found.functions @ np.diag(1 / (found.values + TAU)) @ found.functions.T
    given = found.after_labels([4, 11])
    labelled = [4, 11]
    noisy = prior[np.ix_(labelled, labelled)] + GAMMA * np.eye(2)
    posterior = prior - prior[:, labelled] @ np.linalg.solve(noisy, prior[labelled])
    np.testing.assert_allclose(given.functions @ given.covariance @ given.functions.T, posterior, atol=1e-6)
    for row in (0, 20):
        after = given.after_labels([row]).covariance
        fall = given.reductions()[row]
        assert fall == pytest.approx(np.trace(given.covariance - after), rel=1e-6)
    assert given.reductions()[[4, 11]].max() < given.reductions().mean()


def test_iterative_eigenvectors_agree_with_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = Spectrum(ring(120))
    monkeypatch.setattr(spectrum, "DENSE", 50)
    few = Spectrum(ring(120))
    np.testing.assert_allclose(few.values, dense.values[:100], atol=1e-3)
    assert few.places().shape == (120, 2)
    assert few.places().min() >= 0
    assert few.places().max() <= 1


def test_parts_of_a_graph_that_are_not_connected_are_all_suggested() -> None:
    pair = sparse.block_diag([ring(), ring(), ring()], format="csr")
    found, rows = Spectrum(pair), []
    for _ in range(3):
        rows.append(int(found.reductions().argmax()))
        found = found.after_labels(rows[-1:])
    assert {row // 30 for row in rows} == {0, 1, 2}
