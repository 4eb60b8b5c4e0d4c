"""Stability of classes: clusters keep their classes, noise does not."""

import pytest
import torch

from whatwhere.classification.neighbours import Neighbours
from whatwhere.classification.row_graph import RowGraph
from whatwhere.classification.stability import StabilitySettings, expected_accuracy, stability

HOW = StabilitySettings()


def graph_of(distance: float) -> tuple[RowGraph, torch.Tensor]:
    """Three clusters of rows at a distance from each other, and their classes."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(240) % 3
    rows = distance * torch.eye(6)[classes] + torch.randn(240, 6, generator=generator)
    return RowGraph.of(Neighbours(rows), 10), classes


def test_clusters_are_stable_and_noise_is_not() -> None:
    clusters, classes = graph_of(8.0)
    assert stability(clusters, classes, 3, 3, HOW) > 0.98
    noise, classes = graph_of(0.0)
    assert stability(noise, classes, 3, 3, HOW) < 0.6


def test_the_accuracy_to_expect_lies_between_chance_and_one() -> None:
    assert expected_accuracy(1.0, 4, HOW) == 1
    assert expected_accuracy(0.25, 4, HOW) == 0.25
    assert expected_accuracy(0.1, 4, HOW) == 0.25
    linear = StabilitySettings(power=1.0)
    assert expected_accuracy(0.7, 4, linear) == pytest.approx(0.7)
    assert 0.25 < expected_accuracy(0.7, 4, HOW) < 0.7


def test_many_rows_need_fewer_draws() -> None:
    assert HOW.draws(300, 10) == 4
    assert HOW.draws(40_000, 10) == 1
    assert HOW.is_measured(40_000, 10, 0)
    assert not HOW.is_measured(1_000_000, 10, 0)
    assert not HOW.is_measured(300, 10, 60)
