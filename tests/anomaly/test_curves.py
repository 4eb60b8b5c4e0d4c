"""Sums along curves, next to sums that are written out."""

import itertools
import math

import numpy as np
import pytest
import torch

from whatwhere.anomaly.curves import CurveSpec, in_own_units, largest_sums, strokes


def written_out(responses: np.ndarray, spec: CurveSpec, doublings: int) -> np.ndarray:
    """The sums [K, h, w] along curves of pieces, each chosen by hand, one place at a time."""
    count, height, width = responses.shape

    def at(sums: np.ndarray, k: int, row: int, column: int) -> float:
        if 0 <= row < height and 0 <= column < width:
            return float(sums[k, row, column])
        return 0.0

    sums = responses
    length = spec.piece
    for _ in range(doublings):
        longer = np.zeros_like(sums)
        for k, row, column in itertools.product(range(count), range(height), range(width)):
            ends = []
            for j in (k, k - 1, k, k + 1):
                angle = math.pi * j / count
                down, across = length / 2 * math.sin(angle), length / 2 * math.cos(angle)
                ends.append((round(down), round(across), j % count))
            down, across, _ = ends[0]
            best = max(at(sums, j, row + dy, column + dx) for dy, dx, j in ends[1:])
            longer[k, row, column] = at(sums, k, row - down, column - across) + best
        sums = longer
        length *= 2
    return sums


@pytest.mark.parametrize("doublings", [1, 2])
def test_sums_are_those_along_the_best_curve(doublings: int) -> None:
    responses = np.random.default_rng(0).normal(size=(4, 9, 12)).astype(np.float32)
    spec = CurveSpec(directions=4, piece=2, doublings=doublings)
    found = largest_sums(torch.tensor(responses), 1, spec)
    expected = written_out(responses, spec, doublings)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_faint_bent_line_stands_out_along_its_length() -> None:
    generator = torch.Generator().manual_seed(0)
    kernels = strokes(13)
    kernels = kernels - kernels.mean((1, 2), keepdim=True)
    kernels /= kernels.flatten(1).norm(dim=1)[:, None, None]
    known = torch.ones(24, 24, dtype=torch.bool)

    def above(picture: torch.Tensor) -> tuple[float, float]:
        """How far the best curve stands out, and the best stroke."""
        responses = torch.nn.functional.conv2d(picture[None, None], kernels[:, None], padding=6)[0]
        sums = in_own_units(largest_sums(responses, 4), known)
        return float(sums.max()), float((responses.amax() - responses.mean()) / responses.std())

    noise = torch.randn(8, 96, 96, generator=generator)
    usual = torch.tensor([above(one) for one in noise])
    across = torch.arange(8, 88)
    row = (48 + 6 * torch.sin(across / 20)).round().long()
    bent = torch.randn(96, 96, generator=generator)
    bent[row, across] += 2.0
    curve, stroke = above(bent)
    assert curve > usual[:, 0].max() + 0.5
    assert curve - usual[:, 0].mean() > 2 * (stroke - usual[:, 1].mean())


def test_what_a_surface_has_everywhere_is_no_curve() -> None:
    """Lines in one direction everywhere make no place of it stand out."""
    generator = torch.Generator().manual_seed(0)
    sums = torch.randn(3, 20, 20, generator=generator)
    known = torch.ones(20, 20, dtype=torch.bool)
    plain = in_own_units(sums, known)
    grinding = sums * torch.tensor([9.0, 1.0, 1.0])[:, None, None] + 5.0
    torch.testing.assert_close(in_own_units(grinding, known), plain, rtol=1e-4, atol=1e-4)
