"""The mean of a picture restored at full and at half size."""

import pytest
import torch

from pictures_to_restore import discs
from whatwhere.restoration.scales import ScaleSettings, at_half_size, mix


def error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).square().mean())


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (7, 4), (20, 23)])
def test_half_the_size_of_any_plane_has_its_place(shape: tuple[int, int]) -> None:
    """A slope stays where it is, whatever the grid."""
    rows, columns = (torch.arange(float(side)) for side in shape)
    plane = rows[:, None] + 0.5 * columns
    numbers = []

    def restore(small: torch.Tensor, number: int) -> torch.Tensor:
        numbers.append(number)
        return small

    half = at_half_size(restore, plane)
    assert half.shape == plane.shape
    assert numbers == [0, 1, 2, 3]
    inner = tuple(slice(6, -6) for _ in shape)
    torch.testing.assert_close(half[inner], plane[inner])


def test_half_the_size_counts_where_there_is_no_finer_detail() -> None:
    smooth = torch.linspace(0, 1, 64).expand(64, 64)
    lines = smooth + 0.2 * (torch.arange(64) % 2)
    fine = torch.cat([smooth, lines], 1)
    mean = mix(fine, lambda: fine + 1, 0.1)
    # at the border, pixels outside count as equal to the last
    assert float((mean - fine)[8:-8, 8:40].min()) == pytest.approx(0.5, abs=0.02)
    assert float((mean - fine)[:, 88:].max()) < 0.01
    # less noise makes the same detail count more
    little = discs(64, 64, 3)
    weights = [float((mix(little, lambda: little + 1, s) - little).mean()) for s in (0.02, 0.2)]
    assert weights[0] < weights[1] <= 0.5


def test_half_the_size_is_not_made_where_it_counts_nowhere() -> None:
    noise = torch.rand(32, 32, generator=torch.Generator().manual_seed(0))

    def never() -> torch.Tensor:
        raise AssertionError

    assert mix(noise, never, 0.001) is noise
    assert mix(noise[:1], never, 1.0) is not None
    assert ScaleSettings().least < 0.1


def test_the_mean_has_a_smaller_error() -> None:
    """Two results whose errors are independent."""
    truth = torch.linspace(0, 1, 64).expand(64, 64)
    random = torch.Generator().manual_seed(0)
    fine = truth + 0.002 * torch.randn(64, 64, generator=random)
    coarse = truth + 0.002 * torch.randn(64, 64, generator=random)
    assert error(mix(fine, lambda: coarse, 0.1), truth) < 0.7 * error(fine, truth)
