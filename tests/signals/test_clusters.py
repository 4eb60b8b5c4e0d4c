"""Clusters of pieces: valleys keep them apart, and what varies without a valley is one."""

import numpy as np
import pytest

from whatwhere.signals.clusters import cluster_pieces, k_means

T = np.arange(60) - 28
BUMP = np.exp(-(T**2) / 8)


@pytest.mark.parametrize("count", [40, 400])
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_pieces_of_one_kind_are_one_cluster(count: int, spread: float) -> None:
    """With amplitudes that vary by a fifth as well."""
    rng = np.random.default_rng(0)
    sizes = 10 * rng.normal(1, spread, count)
    pieces = sizes[:, None, None] * BUMP + rng.standard_normal((count, 1, 60))
    assert len(np.unique(cluster_pieces(pieces, 10).number)) == 1


@pytest.mark.parametrize("distance", [6.0, 9.0])
def test_kinds_that_lie_apart_are_two_clusters(distance: float) -> None:
    """One of 130 and one of 65 pieces, at a distance in deviations of the noise."""
    rng = np.random.default_rng(1)
    kind = np.arange(195) % 3 == 0
    other = np.roll(BUMP, 6) / np.linalg.norm(BUMP)
    pieces = 10 * BUMP + kind[:, None, None] * distance * other
    pieces = pieces + rng.standard_normal(pieces.shape)
    number = cluster_pieces(pieces, 10).number
    _, second = np.unique(number)
    is_second = number == second
    assert max((is_second == kind).mean(), (is_second != kind).mean()) > 0.97


def test_a_cluster_at_another_shift_is_merged_at_it() -> None:
    rng = np.random.default_rng(0)
    late = np.arange(120) % 2 == 1
    shape = 12 * BUMP - 6 * np.roll(BUMP, 7)
    pieces = np.stack([np.roll(shape, 5) if one else shape for one in late])[:, None]
    clusters = cluster_pieces(pieces + rng.standard_normal(pieces.shape), 10)
    assert len(np.unique(clusters.number)) == 1
    shifts = clusters.shift - clusters.shift[0]
    assert (np.abs(shifts - 5 * late) <= 1).all()


def test_k_means_finds_groups_far_from_each_other() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, 3)) + 30 * (np.arange(90) % 3)[:, None]
    number = k_means(rows, 3, 10, 0)
    assert all(len(np.unique(number[k::3])) == 1 for k in range(3))
    assert len(np.unique(number)) == 3
