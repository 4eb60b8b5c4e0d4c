"""Splits: the paper's cut, and as many labels of every class by seed."""

import numpy as np
import pytest
import torch

from whatwhere.data import few_labels, load, train_validation
from whatwhere.errors import ImageError, SpecError


def test_the_papers_cut_of_60_000_images() -> None:
    images = load(np.zeros((60_000, 1, 1), np.uint8), labels=np.arange(60_000))
    train, validation = train_validation(images)
    assert (len(train), len(validation)) == (50_000, 10_000)
    np.testing.assert_array_equal(train.labels, np.arange(50_000))
    np.testing.assert_array_equal(validation.labels, np.arange(50_000, 60_000))


@pytest.mark.parametrize(("count", "cut"), [(5000, 4166), (12, 10), (7, 5), (2, 1)])
def test_a_smaller_set_is_cut_in_proportion(count: int, cut: int) -> None:
    images = load(np.arange(count, dtype=np.uint16).reshape(-1, 1, 1))
    train, validation = train_validation(images)
    assert len(train) == cut
    assert torch.equal(torch.cat([train[:], validation[:]]), images[:])


def test_one_image_cannot_be_cut() -> None:
    with pytest.raises(ImageError, match="cannot be split"):
        train_validation(load(np.zeros((1, 4, 4), np.uint8)))


@pytest.mark.parametrize("count", [100, 300, 1000, 3000])
def test_few_labels_take_as_many_of_every_class(count: int) -> None:
    labels = load("digits").labels
    assert labels is not None
    rows = few_labels(labels, count, seed=3)
    assert np.bincount(labels[rows]).tolist() == [count // 10] * 10
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_array_equal(rows, few_labels(labels, count, seed=3))
    assert set(rows) != set(few_labels(labels, count, seed=4))
    assert set(few_labels(labels, 100, seed=3)) <= set(rows)


@pytest.mark.parametrize(
    ("count", "reason"), [(95, "multiple of 10"), (0, "multiple"), (-10, "multiple"), (4580, "only")]
)
def test_impossible_counts_raise(count: int, reason: str) -> None:
    labels = load("digits").labels
    assert labels is not None
    with pytest.raises(SpecError, match=reason):
        few_labels(labels, count, seed=0)
