"""The map of a graph, compared with dense linear algebra."""

import numpy as np
from scipy import sparse

from whatwhere.labelling.map_places import MapSettings, map_places


def chain(count: int) -> sparse.csr_array:
    """Rows on a line, each joined to its two neighbours."""
    weights = np.diag(np.ones(count - 1), 1)
    return sparse.csr_array(weights + weights.T)


def test_neighbours_are_next_to_each_other_on_the_map() -> None:
    places = map_places(chain(40))
    steps = np.diff(places[:, 0])
    assert (steps > 0).all() or (steps < 0).all(), "the smoothest function of a line rises or falls"
    assert (places.min(), places.max()) == (0, 1)


def test_iterative_eigenvectors_give_the_same_map_as_dense_ones() -> None:
    dense = map_places(chain(60))
    few = map_places(chain(60), MapSettings(dense=50))
    for axis in range(2):  # an eigenvector may have either sign
        difference = min(
            np.abs(few[:, axis] - d).max() for d in (dense[:, axis], 1 - dense[:, axis])
        )
        assert difference < 0.05, axis


def test_two_pictures_have_a_map() -> None:
    assert map_places(chain(2)).shape == (2, 2)
