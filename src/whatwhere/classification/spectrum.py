"""The smoothest functions on a graph: a map of its rows, and what labels of some rows leave unknown of the others.

    L = I - D^-½ W D^-½ = V diag(λ) Vᵀ,      φ = D^-½ V, the M columns with the smallest λ

A class is a smooth function on the graph: f = Σ a_m φ_m with variances 1 / (λ_m + τ) of a_m. A label observes f at its
row, so that the covariance C of a falls by a rank of one. A label of row i would reduce the
variances of all a together by ‖C φ_i‖² / (γ + φ_iᵀ C φ_i)

    M. Ji, J. Han, "A variance minimization criterion to active learning on graphs", AISTATS 2012.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

FUNCTIONS = 100
TAU, GAMMA = 1e-3, 1e-2  # of the prior, and the variance of a label
DENSE = 400  # rows up to which all eigenvectors are computed


class Spectrum:
    """The smoothest functions on a graph, given as a symmetric sparse matrix [N, N] of weights."""

    def __init__(self, matrix: Any) -> None:
        count = matrix.shape[0]
        degrees = np.maximum(np.asarray(matrix.sum(1)).ravel(), 1e-12)
        root = sparse.diags_array(degrees**-0.5)
        scaled = root @ matrix @ root
        if count <= DENSE:
            values, vectors = np.linalg.eigh(scaled.toarray())
        else:
            values, vectors = eigsh(scaled, k=FUNCTIONS, which="LA", v0=degrees**0.5, tol=1e-4)
        order = np.argsort(-values)[:FUNCTIONS]
        self.values = np.maximum(1 - values[order], 0.0)
        self.functions = vectors[:, order] * (degrees.mean() / degrees[:, None]) ** 0.5
        self.covariance = np.diag(1 / (self.values + TAU))

    def places(self) -> np.ndarray:
        """Places of the rows on a map, [N, 2], from 0 to 1: mostly ranks, so that crowded regions get room."""
        count = len(self.functions)
        places = np.zeros((count, 2))
        chosen = self.functions[:, 1:3]
        places[:, : chosen.shape[1]] = chosen
        ranks = places.argsort(0, kind="stable").argsort(0, kind="stable") / max(count - 1, 1)
        low, high = places.min(0), places.max(0)
        return np.asarray(0.3 * (places - low) / np.maximum(high - low, 1e-12) + 0.7 * ranks)

    def after_labels(self, rows: Any) -> Spectrum:
        """The same, with the covariance after labels of these rows."""
        after = object.__new__(Spectrum)
        after.values, after.functions, after.covariance = self.values, self.functions, self.covariance
        for row in rows:
            phi = after.functions[row]
            gain = after.covariance @ phi
            after.covariance = after.covariance - np.outer(gain, gain) / (GAMMA + phi @ gain)
        return after

    def reductions(self) -> np.ndarray:
        """By how much a label of each row would reduce the variance of all rows, [N]."""
        gains = self.functions @ self.covariance
        return np.asarray((gains**2).sum(1) / (GAMMA + (gains * self.functions).sum(1)))
