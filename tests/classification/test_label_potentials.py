"""Labels that come one at a time, and labels that are held out, against direct solutions."""

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from whatwhere.classification import calibration
from whatwhere.classification.calibration import HELD_OUT_TOLERANCE
from whatwhere.classification.label_potentials import ContributionSettings, LabelPotentials
from whatwhere.classification.neighbour_graph import symmetric_graph
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.classification.poisson import (
    POISSON,
    PoissonSystem,
    poisson_learning,
    tau_for,
)

COUNT = 2000  # six labels at most have the usual τ
EVEN = torch.full((3,), 1 / 3, dtype=torch.float64)
MANY = int(POISSON.tau * COUNT) + 6


@pytest.fixture(scope="module")
def graph() -> Tensor:
    """Three groups of rows that overlap."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(COUNT, 4, generator=generator)
    x[:, 0] += 2 * (torch.arange(COUNT) % 3)
    nearest = Neighbours(x).others(8)
    return symmetric_graph(neighbour_weights(nearest.squares), nearest.rows)


def labelled(count: int) -> tuple[Tensor, Tensor]:
    """The first rows that get a label, and their classes."""
    rows = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))[:count]
    return rows, rows % 3


def assert_potentials_are_those_of(graph: Tensor, rows: Tensor, labels: Tensor, u: Tensor) -> None:
    wanted = poisson_learning(graph, rows, labels, EVEN, tau=tau_for(len(rows), COUNT))
    torch.testing.assert_close(u, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


def test_labels_one_at_a_time_have_the_potentials_of_all_at_once(graph: Tensor) -> None:
    """Up to the number from which on τ follows it, and beyond."""
    potentials = LabelPotentials(graph)
    for count in (2, 3, 4, 6, 7, MANY):
        rows, labels = labelled(count)
        u = potentials.of(rows, labels, EVEN).all_rows
        assert_potentials_are_those_of(graph, rows, labels, u)


def test_labels_that_are_taken_back_or_changed_leave_nothing_behind(graph: Tensor) -> None:
    potentials = LabelPotentials(graph)
    rows, labels = labelled(6)
    for keep, given in ((6, labels), (6, labels), (4, labels), (6, 2 - labels)):
        u = potentials.of(rows[:keep], given[:keep], EVEN).all_rows
        assert_potentials_are_those_of(graph, rows[:keep], given[:keep], u)
    assert set(potentials._contributions) == set(rows.tolist())
    potentials.of(rows[:2], labels[:2], EVEN)
    assert set(potentials._contributions) == set(rows[:2].tolist())


@pytest.mark.parametrize(
    ("count", "changes", "tolerance"),
    [(6, 1, HELD_OUT_TOLERANCE), (6, 2, POISSON.tolerance), (MANY, 2, HELD_OUT_TOLERANCE)],
    ids=["a single fit", "a change", "many labels"],
)
def test_held_out_rows_have_the_potentials_of_the_other_labels(
    graph: Tensor, count: int, changes: int, tolerance: float
) -> None:
    potentials = LabelPotentials(graph)
    rows, labels = labelled(count)
    folds = calibration.folds(labels)
    assert len(folds) > 1
    for _ in range(changes):
        found = potentials.of(rows, labels, EVEN, folds).held_out
    parts = found.split([len(fold.held_out) for fold in folds])
    for fold, u in zip(folds, parts, strict=True):
        tau = tau_for(len(fold.kept), COUNT)
        kept = fold.kept
        wanted = poisson_learning(graph, rows[kept], labels[kept], EVEN, tolerance, tau)
        wanted = wanted[rows[fold.held_out]]
        torch.testing.assert_close(u, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


def test_a_new_label_costs_one_column(graph: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[int] = []
    solve = PoissonSystem.solve

    def counted(self: PoissonSystem, source: Tensor, *more: Any, **named: Any) -> Tensor:
        solved.append(source.shape[1])
        return solve(self, source, *more, **named)

    monkeypatch.setattr(PoissonSystem, "solve", counted)
    potentials = LabelPotentials(graph)
    for count in (4, 4, 5, 6, 6):
        rows, labels = labelled(count)
        potentials.of(rows, labels, EVEN, calibration.folds(labels))
    folds = len(calibration.folds(labelled(4)[1]))
    # all at once, with those that are held out; then the contribution of every label, then those of
    # new ones
    assert sorted(solved[:2]) == [3, 3 * folds]
    assert solved[2:] == [4, 1, 1]
    assert ContributionSettings().at_once >= 4


def test_prepared_labels_cost_nothing_and_pauses_come_before_each_part(graph: Tensor) -> None:
    rows, labels = labelled(5)
    potentials = LabelPotentials(graph, ContributionSettings(at_once=2))
    pauses: list[int] = []
    potentials.prepare(rows, lambda: pauses.append(len(potentials._contributions)))
    assert pauses == [0, 2, 4]
    potentials.prepare(rows, lambda: pauses.append(-1))
    assert len(pauses) == 3, "all are there"
    assert_potentials_are_those_of(graph, rows, labels, potentials.of(rows, labels, EVEN).all_rows)
    potentials.prepare(labelled(MANY)[0], lambda: pauses.append(-1))
    assert len(pauses) == 3, "so many are not kept"


def test_potentials_of_many_rows_in_single_precision_give_the_same_classes(graph: Tensor) -> None:
    rows, labels = labelled(6)
    found = LabelPotentials(graph, ContributionSettings(large=1)).of(rows, labels, EVEN).all_rows
    true = LabelPotentials(graph).of(rows, labels, EVEN).all_rows
    assert found.dtype == true.dtype
    assert not torch.equal(found, true)
    assert float((found.argmax(1) == true.argmax(1)).double().mean()) > 0.999


def test_contributions_are_not_saved(graph: Tensor) -> None:
    potentials = LabelPotentials(graph)
    rows, labels = labelled(5)
    for _ in range(2):
        potentials.of(rows, labels, EVEN)
    copy = pickle.loads(pickle.dumps(potentials))
    assert not copy._contributions
    assert_potentials_are_those_of(graph, rows, labels, copy.of(rows, labels, EVEN).all_rows)
