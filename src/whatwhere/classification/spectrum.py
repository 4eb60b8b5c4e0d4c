"""A map of a graph: its smoothest functions as places."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

DENSE = 400  # rows up to which all eigenvectors are computed
RANK = 0.7  # share of a place that is a rank, so that crowded regions get room


def map_places(matrix: Any) -> np.ndarray:
    """Places of the rows of a graph, [N, 2], from 0 to 1.

    They are the second and third eigenvector of D^-½ W D^-½, divided by the roots of the degrees: functions that change
    least between neighbours.

    matrix  the weights W, [N, N], sparse and symmetric
    """
    count = matrix.shape[0]
    degrees = np.maximum(np.asarray(matrix.sum(1)).ravel(), 1e-12)
    root = sparse.diags_array(degrees**-0.5)
    scaled = root @ matrix @ root
    if count <= DENSE:
        _, vectors = np.linalg.eigh(scaled.toarray())
    else:
        start = np.random.default_rng(0).normal(size=count)  # an eigenvector would find no others
        values, vectors = eigsh(scaled, k=3, which="LA", v0=start, tol=1e-5)
        vectors = vectors[:, np.argsort(values)]
    places = np.zeros((count, 2))
    chosen = vectors[:, -2:-4:-1] / degrees[:, None] ** 0.5
    places[:, : chosen.shape[1]] = chosen
    ranks = places.argsort(0, kind="stable").argsort(0, kind="stable") / max(count - 1, 1)
    low, high = places.min(0), places.max(0)
    return np.asarray((1 - RANK) * (places - low) / np.maximum(high - low, 1e-12) + RANK * ranks)
