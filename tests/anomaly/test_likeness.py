"""Pictures that a detector cannot judge."""

import numpy as np
import pytest
import torch

from whatwhere.anomaly.likeness import LearnedKind, UnlikeLearned, are_of_another_kind


def test_sizes_within_the_scale_are_accepted() -> None:
    kind = LearnedKind.of([torch.zeros(3, 40, 60), torch.zeros(3, 80, 60)])
    for height, width in ((33, 33), (60, 60), (103, 103)):
        kind.check(torch.zeros(3, height, width), "a.png")
    for channels, height, width in ((3, 32, 32), (3, 104, 105), (1, 60, 60), (4, 60, 60)):
        with pytest.raises(UnlikeLearned):
            kind.check(torch.zeros(channels, height, width), "a.png")


def test_almost_only_alarms_mean_pictures_of_another_kind() -> None:
    normal = np.linspace(-1, 1, 30)
    assert are_of_another_kind(np.full(9, 2.0), normal)
    assert not are_of_another_kind(np.full(3, 2.0), normal)
    assert not are_of_another_kind(np.append(np.full(6, 2.0), np.zeros(3)), normal)
