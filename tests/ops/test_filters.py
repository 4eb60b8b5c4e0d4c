"""Filters: which maps they connect, and their projection."""

import pytest
import torch

from operators import draw
from whatwhere.ops.filters import project_filters, random_connectivity


def test_each_map_joins_fan_in_different_maps() -> None:
    connected = random_connectivity(16, 48, 8, torch.Generator().manual_seed(0))
    assert connected.sum(0).tolist() == [8] * 48
    assert len({tuple(column.tolist()) for column in connected.T}) > 40  # drawn anew for every map


def test_all_connected_without_fan_in() -> None:
    assert random_connectivity(3, 4, None, torch.Generator()).all()


@pytest.mark.parametrize(("normalise", "dims"), [("filter", (0, 2, 3)), ("plane", (2, 3))])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_projected_filters_are_masked_and_of_unit_length(
    normalise: str, dims: tuple, nonnegative: bool
) -> None:
    connected = random_connectivity(6, 5, 3, torch.Generator().manual_seed(0))
    f = project_filters(draw(6, 5, 3, 3), connected, nonnegative=nonnegative, normalise=normalise)
    lengths = f.square().sum(dims)
    expected = torch.ones_like(lengths) if normalise == "filter" else connected.double()
    torch.testing.assert_close(lengths, expected)
    assert (f[~connected] == 0).all()
    assert bool((f >= 0).all()) == nonnegative


def test_a_vanished_filter_stays_zero() -> None:
    f = -torch.ones(2, 1, 3, 3)
    assert (
        project_filters(f, torch.ones(2, 1, dtype=torch.bool), nonnegative=True, normalise="filter")
        == 0
    ).all()
