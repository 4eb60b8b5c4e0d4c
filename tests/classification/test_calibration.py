"""Probabilities that are right as often as they say: sharpness, offsets, folds, far rows."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.classification.calibration import (
    USUAL,
    calibrate,
    folds,
    mix_isolated,
    scaled,
    usual_length,
    usual_sharpness,
)


def test_every_label_is_held_out_once_but_the_only_one_of_a_class() -> None:
    labels = torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 2, 2])
    found = folds(labels)
    assert sorted(torch.cat([fold.held_out for fold in found]).tolist()) == list(range(1, 10))
    for fold in found:
        assert sorted([*fold.held_out.tolist(), *fold.kept.tolist()]) == list(range(10))
        assert set(labels[fold.kept].tolist()) == {0, 1, 2}, "every class keeps a label"


def drawn_labels(scores: torch.Tensor, sharpness: float, offsets: torch.Tensor) -> torch.Tensor:
    chances = (sharpness * scores + offsets).softmax(1)
    generator = torch.Generator().manual_seed(1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


def test_sharpness_and_offsets_are_the_most_likely_ones_of_many_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.nn.functional.normalize(torch.randn(4000, 3, generator=generator), dim=1)
    offsets = torch.tensor([0.6, 0.0, -0.6]).double()
    for true in (2.0, 12.0):
        labels = drawn_labels(scores.double(), true, offsets)
        found = calibrate(scores.double(), labels)
        assert found.sharpness == pytest.approx(true, rel=0.1)
        torch.testing.assert_close(found.offsets, offsets, atol=0.2, rtol=0)


def test_the_calibration_of_few_labels_stays_near_the_usual_one() -> None:
    none = calibrate(torch.zeros(0, 3).double(), torch.zeros(0, dtype=torch.long))
    assert none.sharpness == pytest.approx(USUAL)
    assert none.offsets.tolist() == [0, 0, 0]
    wrong = calibrate(torch.tensor([[0.8, -0.4, -0.4]]).double(), torch.tensor([1]))
    assert USUAL / 20 < wrong.sharpness < USUAL
    assert 0 < wrong.offsets[1] < 0.5
    right = calibrate(torch.tensor([[0.2, -0.1, -0.1]]).double(), torch.tensor([0]))
    assert USUAL < right.sharpness < 10 * USUAL


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 0.95])
def test_rows_are_as_sure_as_the_accuracy_that_is_expected(accuracy: float) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(500, 4, generator=generator).double()
    sharpness = usual_sharpness(scores, accuracy)
    found = calibrate(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), sharpness)
    sure = found.probabilities(scores).max(1).values.mean()
    assert float(sure) == pytest.approx(accuracy, abs=1e-3)


def test_the_most_likely_calibration_by_brute_force() -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(30, 2, generator=generator).double()
    labels = torch.randint(0, 2, (30,), generator=generator)

    def loss(sharpness: float, offset: float) -> float:
        offsets = torch.tensor([offset, -offset]).double()
        logs = (sharpness * scores + offsets).log_softmax(1)
        doubt = 0.5 * np.log(sharpness / USUAL) ** 2 + 2 * (offset / 0.5) ** 2
        return float(-logs[torch.arange(30), labels].sum() + 0.5 * doubt)

    found = calibrate(scores, labels)
    least = loss(found.sharpness, float(found.offsets[0]))
    tried = [
        loss(USUAL * np.exp(change), offset)
        for change in np.linspace(-5, 2, 71)
        for offset in np.linspace(-1, 1, 41)
    ]
    assert least <= min(tried) + 1e-6


def test_a_class_with_more_labels_is_likelier_where_classes_overlap() -> None:
    """Classes that rows cannot tell apart: the larger one is the better guess."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 4))
    truth = (generator.random(300) < 0.15).astype(int)
    labelled = generator.permutation(300)[:80]
    y = np.full(300, -1)
    y[labelled] = truth[labelled]
    others = np.setdiff1d(np.arange(300), labelled)
    found = ww.GraphClassifier().fit(X, y).transduction_
    assert np.mean(found[others] != truth[others]) < 0.3


def test_weak_potentials_count_less() -> None:
    u = torch.tensor([[1.0, -1.0], [100.0, -100.0], [1e-4, -1e-4], [0.0, 0.0]]).double()
    scores = scaled(u, usual_length(u))
    assert float(usual_length(u)) == pytest.approx(2**0.5)
    torch.testing.assert_close(
        scores.norm(dim=1), torch.tensor([1.0, 100**0.5, 0.0001**0.5, 0]).double()
    )


def test_isolated_rows_go_to_equal_shares_and_keep_their_class() -> None:
    p = torch.tensor([[0.9, 0.1, 0.0]] * 3)
    mixed = mix_isolated(p, torch.tensor([1.0, 2.0, 100.0]), torch.tensor(2.0))
    torch.testing.assert_close(mixed[:2], p[:2])
    assert mixed[2].argmax() == 0
    assert mixed[2].max() < 0.35
    torch.testing.assert_close(mixed.sum(1), torch.ones(3))


def overlapping(spread: float, each: int = 150, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), each)
    return np.eye(classes, 6)[y] * 4 + generator.normal(size=(len(y), 6)) * spread, y


def calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    sure = probabilities.max(1)
    right = probabilities.argmax(1) == y
    bins = np.minimum((10 * sure).astype(int), 9)
    used = [bins == number for number in np.unique(bins)]
    return sum(rows.mean() * abs(sure[rows].mean() - right[rows].mean()) for rows in used)


@pytest.mark.parametrize("spread", [0.7, 1.5, 2.2])
def test_probabilities_are_calibrated_where_classes_are_apart_and_where_they_overlap(
    spread: float,
) -> None:
    X, truth = overlapping(spread)
    found = []
    for seed in range(3):
        labelled = ww.data.few_labels(truth, 40, seed)
        y = np.full(len(truth), -1)
        y[labelled] = truth[labelled]
        shares = ww.GraphClassifier().fit(X, y).label_distributions_
        others = np.setdiff1d(np.arange(len(truth)), labelled)
        found.append(calibration_error(shares[others], truth[others]))
    assert np.mean(found) < 0.1


def test_labels_that_were_held_out_set_the_sharpness() -> None:
    """With labels at random nothing can be known, and rows must not be sure."""
    X, truth = overlapping(1.0)
    y = np.full(len(truth), -1)
    labelled = ww.data.few_labels(truth, 80, 0)
    y[labelled] = np.random.default_rng(0).integers(0, 4, 80)
    sure = ww.GraphClassifier().fit(X, y).label_distributions_.max(1)
    others = np.setdiff1d(np.arange(len(truth)), labelled)
    assert sure[others].mean() < 0.5
    y[labelled] = truth[labelled]
    sure = ww.GraphClassifier().fit(X, y).label_distributions_.max(1)
    assert sure[others].mean() > 0.6
