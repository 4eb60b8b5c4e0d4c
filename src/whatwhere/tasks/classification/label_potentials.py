"""Potentials of labels that change, on one graph, and of the same labels without some of them.

Potentials are linear in their sources (`poisson`). What a source of 1 at a labelled row adds to the
potentials of all rows is therefore kept: a new label costs the solution of one column, and the
potentials of any of the labels are sums. Two cases are
solved directly: labels that are spread only once, and so many labels that τ follows their number.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from whatwhere.tasks.classification.calibration import HELD_OUT_TOLERANCE, Fold
from whatwhere.tasks.classification.poisson import (
    TAU,
    PoissonSystem,
    label_sources,
    source_strengths,
    tau_for,
)

MOST_NUMBERS = 1 << 25  # that are kept: 256 MB
MOST_AT_ONCE = 16  # rows whose contributions are computed for one change of labels


class LabelPotentials:
    """Potentials of labels on a graph, a sparse CSR matrix [N, N]."""

    def __init__(self, graph: Tensor) -> None:
        self.graph = graph
        self.system = PoissonSystem(graph)
        self._is_first = True
        self._contributions: dict[int, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Contributions are not saved: they can be computed again."""
        return self.__dict__ | {"_is_first": True, "_contributions": {}}

    def of(self, rows: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        """The potentials [N, K] of labelled rows [m] and their classes [m], whose `shares` are
        [K]."""
        self._compute_contributions(rows)
        if self._has_all(rows):
            return self._rows_of(rows).T @ source_strengths(labels, shares)
        sources = label_sources(self.graph, rows, labels, shares)
        return self.system.solve(sources, tau=tau_for(len(rows), self.graph.shape[0]))

    def without(
        self, folds: Sequence[Fold], rows: Tensor, labels: Tensor, shares: Tensor
    ) -> list[Tensor]:
        """The potentials [n, K] of the rows that each fold holds out, from its other labels."""
        if not folds:
            return []
        if self._has_all(rows):
            among = self._rows_of(rows)[:, rows]
            return [
                among[fold.kept][:, fold.held_out].T @ source_strengths(labels[fold.kept], shares)
                for fold in folds
            ]
        # sparse products use one core each
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(
                pool.map(lambda fold: self._solve_without(fold, rows, labels, shares), folds)
            )

    def _solve_without(self, fold: Fold, rows: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        sources = label_sources(self.graph, rows[fold.kept], labels[fold.kept], shares)
        tau = tau_for(len(fold.kept), self.graph.shape[0])
        # single precision is far more precise than the tolerance
        u = self.system.solve(sources.float(), HELD_OUT_TOLERANCE, tau)
        return u[rows[fold.held_out]].to(shares)

    def _compute_contributions(self, rows: Tensor) -> None:
        """Compute some of those that are missing; the rest follows with the next change."""
        count = self.graph.shape[0]
        is_first = self._is_first
        self._is_first = False
        numbers = rows.tolist()
        self._contributions = {
            row: self._contributions[row] for row in numbers if row in self._contributions
        }
        if is_first or len(rows) > TAU * count or len(rows) * count > MOST_NUMBERS:
            return
        missing = [row for row in numbers if row not in self._contributions][:MOST_AT_ONCE]
        if missing:
            source = self.graph.new_zeros(count, len(missing), layout=torch.strided)
            source[missing, range(len(missing))] = 1
            solved = self.system.solve(source).T.contiguous()
            self._contributions |= dict(zip(missing, solved, strict=True))

    def _has_all(self, rows: Tensor) -> bool:
        return all(row in self._contributions for row in rows.tolist())

    def _rows_of(self, rows: Tensor) -> Tensor:
        return torch.stack([self._contributions[row] for row in rows.tolist()])
