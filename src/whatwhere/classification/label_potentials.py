"""Potentials on one graph, for labels that change, and for the same labels with some of them held
out.

Potentials are linear in their sources (`poisson`). What a source of 1 at a labelled row adds to the
potentials of all rows is therefore kept: a new label costs the solution of one column, and the
potentials of any of the labels are sums. Two cases are solved directly: labels that are spread only
once, and so many labels that τ follows their number.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from whatwhere.classification.calibration import HELD_OUT_TOLERANCE, Fold
from whatwhere.classification.poisson import (
    POISSON,
    PoissonSystem,
    label_sources,
    source_strengths,
    tau_for,
)
from whatwhere.progress import no_op


@dataclass(frozen=True)
class ContributionSettings:
    """How many contributions of labels are computed and kept.

    Parameters
    ----------
    numbers
        that are kept, at most: 256 MB
    at_once
        rows whose contributions are computed for one change of labels
    tolerance
        of their residual. They are computed in single precision, so that a label among 200,000 rows
        is followed in a second; 2 of 10,000 rows then change their class
        (benchmarks/labels/results/one_more_label.json)
    large
        potentials from which on all are computed in this way, on as many cores as torch uses
    """

    numbers: int = 1 << 25
    at_once: int = 16
    tolerance: float = 1e-5
    large: int = 1 << 21


class Potentials(NamedTuple):
    """Potentials of all rows [N, K]; and of the rows that folds hold out, one fold after the other,
    from their other labels, [n, K]."""

    all_rows: Tensor
    held_out: Tensor


class LabelPotentials:
    """Potentials of labels on a graph, a sparse CSR matrix [N, N]."""

    def __init__(self, graph: Tensor, settings: ContributionSettings | None = None) -> None:
        self.settings = settings or ContributionSettings()
        self.graph = graph
        self.system = PoissonSystem(graph)
        self._is_first = True
        self._contributions: dict[int, Tensor] = {}

    def __getstate__(self) -> dict[str, object]:
        """Contributions are not saved: they can be computed again."""
        return self.__dict__ | {"_is_first": True, "_contributions": {}}

    def of(
        self, rows: Tensor, labels: Tensor, shares: Tensor, folds: Sequence[Fold] = ()
    ) -> Potentials:
        """Return the potentials of labelled rows [m] and their classes [m], whose `shares` are
        [K]."""
        self._compute_contributions(rows)
        if self._has_all(rows):
            return self._sums(rows, labels, shares, folds)
        sources = label_sources(self.graph, rows, labels, shares)
        tau = tau_for(len(rows), self.graph.shape[0])
        # sparse products use one core each
        with ThreadPoolExecutor(1) as other_core:
            held_out = other_core.submit(self._solve_held_out, rows, labels, shares, folds)
            all_rows = self._solve_all(sources, tau)
            return Potentials(all_rows, held_out.result())

    def _solve_all(self, sources: Tensor, tau: float) -> Tensor:
        """Return the potentials of sources [N, K]; of many rows in single precision, by columns."""
        if sources.numel() < self.settings.large:
            return self.system.solve(sources, tau=tau)
        cores = torch.get_num_threads()
        columns = sources.float().tensor_split(min(cores, sources.shape[1]), dim=1)
        with ThreadPoolExecutor(cores) as pool:
            solve = partial(self.system.solve, tolerance=self.settings.tolerance, tau=tau)
            return torch.cat(list(pool.map(solve, columns)), 1).to(sources)

    def _sums(
        self, rows: Tensor, labels: Tensor, shares: Tensor, folds: Sequence[Fold]
    ) -> Potentials:
        """Return the potentials, as sums of what the labels contribute."""
        contributions = self._rows_of(rows)
        all_rows = contributions.T @ source_strengths(labels, shares)
        among = contributions[:, rows]
        held_out = [
            among[fold.kept][:, fold.held_out].T @ source_strengths(labels[fold.kept], shares)
            for fold in folds
        ]
        return Potentials(all_rows, torch.cat([all_rows[:0], *held_out]))

    def _solve_held_out(
        self, rows: Tensor, labels: Tensor, shares: Tensor, folds: Sequence[Fold]
    ) -> Tensor:
        """Return the potentials of the rows that are held out, the columns of all folds at once."""
        count = self.graph.shape[0]
        sources = [
            label_sources(self.graph, rows[fold.kept], labels[fold.kept], shares) for fold in folds
        ]
        taus = [tau_for(len(fold.kept), count) for fold in folds]
        if not folds:
            return shares.new_zeros(0, len(shares))
        # single precision is far more precise than the tolerance
        tau = torch.tensor(taus, device=shares.device).repeat_interleave(len(shares))
        u = self.system.solve(torch.cat(sources, 1).float(), HELD_OUT_TOLERANCE, tau)
        parts = u.to(shares).split(len(shares), 1)
        held_out = [part[rows[fold.held_out]] for part, fold in zip(parts, folds, strict=True)]
        return torch.cat(held_out)

    def prepare(self, rows: Tensor, pause: Callable[[], object] = no_op) -> None:
        """Compute what labelled rows [m] contribute, as far as it is kept, so that other labels
        cost a column each.

        Parameters
        ----------
        pause
            called between some rows and the next
        """
        self._is_first = False
        numbers = rows.tolist()
        while self._are_kept(rows) and not self._has_all(rows):
            pause()
            self._compute(numbers)

    def _compute_contributions(self, rows: Tensor) -> None:
        """Compute some of the missing contributions; the rest follows with the next change."""
        is_first = self._is_first
        self._is_first = False
        numbers = rows.tolist()
        self._contributions = {
            row: self._contributions[row] for row in numbers if row in self._contributions
        }
        if not is_first and self._are_kept(rows):
            self._compute(numbers)

    def _are_kept(self, rows: Tensor) -> bool:
        """Tell whether contributions of so many labelled rows are kept."""
        count = self.graph.shape[0]
        is_many = len(rows) > POISSON.tau * count or len(rows) * count > self.settings.numbers
        return not is_many

    def _compute(self, numbers: Sequence[int]) -> None:
        """Compute the contributions of the first of some rows that are missing."""
        missing = [row for row in numbers if row not in self._contributions]
        missing = missing[: self.settings.at_once]
        if missing:
            source = torch.zeros(self.graph.shape[0], len(missing), device=self.graph.device)
            source[missing, range(len(missing))] = 1
            solved = self.system.solve(source, self.settings.tolerance).double().T.contiguous()
            self._contributions |= dict(zip(missing, solved, strict=True))

    def _has_all(self, rows: Tensor) -> bool:
        return all(row in self._contributions for row in rows.tolist())

    def _rows_of(self, rows: Tensor) -> Tensor:
        return torch.stack([self._contributions[row] for row in rows.tolist()])
