"""Joined rows: distances are the weighted sums of those of the views."""

import pytest
import torch

from whatwhere.classification.view_join import ViewJoin, read_join
from whatwhere.errors import ImageError, SpecError


def rows() -> torch.Tensor:
    return torch.randn(20, 7, generator=torch.Generator().manual_seed(0)) + 3


def test_squared_distances_are_weighted_sums() -> None:
    equal = ViewJoin.of({"a": 3, "b": 4}, rows())
    join = ViewJoin(equal.columns, equal.mean, (0.25, 0.75))
    a, b = join.parts(rows())
    torch.testing.assert_close(a.norm(dim=1), torch.ones(20))
    expected = 0.25 * torch.cdist(a, a).square() + 0.75 * torch.cdist(b, b).square()
    joined = join(rows())
    torch.testing.assert_close(torch.cdist(joined, joined).square(), expected, atol=1e-4, rtol=1e-4)


def test_units_of_a_view_do_not_matter() -> None:
    scaled = rows()
    scaled[:, :3] *= 100
    first = ViewJoin.of({"a": 3, "b": 4}, rows())(rows())
    second = ViewJoin.of({"a": 3, "b": 4}, scaled)(scaled)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4)


def test_a_file_holds_it() -> None:
    join = ViewJoin.of({"a": 3, "b": 4}, rows())
    again = read_join(join.settings(), join.tensors())
    assert again is not None
    torch.testing.assert_close(again(rows()), join(rows()))
    assert read_join({}, {}) is None
    with pytest.raises(SpecError):
        read_join({"join": {"columns": {"a": 2}, "weights": [1.0]}}, join.tensors())


def test_columns_must_add_up() -> None:
    with pytest.raises(SpecError):
        ViewJoin.of({"a": 3, "b": 5}, rows())
    with pytest.raises(ImageError):
        ViewJoin.of({"a": 3, "b": 4}, rows())(rows()[:, :6])
