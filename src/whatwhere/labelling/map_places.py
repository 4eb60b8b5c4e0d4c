"""Places of pictures on a map, where similar pictures are neighbours."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class MapSettings:
    """How a map is drawn.

    Parameters
    ----------
    dense
        rows up to which all eigenvectors are computed, which is faster than iterations
    rank
        share of a place that is a rank, so that crowded regions get room
    """

    dense: int = 400
    rank: float = 0.7


def map_places(matrix: "csr_array", settings: MapSettings | None = None) -> np.ndarray:
    """Places of the rows of a graph, [N, 2], from 0 to 1.

    They are the second and third eigenvector of D^-½ W D^-½, divided by the roots of the degrees:
    functions that change least between neighbours.

    Parameters
    ----------
    matrix
        the weights W, [N, N], sparse and symmetric
    """
    settings = settings or MapSettings()
    count = matrix.shape[0]
    degrees = np.maximum(np.asarray(matrix.sum(1)).ravel(), 1e-12)
    root = sparse.diags_array(degrees**-0.5)
    scaled = root @ matrix @ root
    if count <= settings.dense:
        _, vectors = np.linalg.eigh(scaled.toarray())
    else:
        start = np.random.default_rng(0).normal(size=count)  # an eigenvector would find no others
        values, vectors = eigsh(scaled, k=3, which="LA", v0=start, tol=1e-5)
        vectors = vectors[:, np.argsort(values)]
    places = np.zeros((count, 2))
    chosen = vectors[:, -2:-4:-1] / degrees[:, None] ** 0.5
    places[:, : chosen.shape[1]] = chosen
    ranks = places.argsort(0, kind="stable").argsort(0, kind="stable") / max(count - 1, 1)
    low = places.min(0)
    high = places.max(0)
    scaled_places = (places - low) / np.maximum(high - low, 1e-12)
    return np.asarray((1 - settings.rank) * scaled_places + settings.rank * ranks)
