"""Upright images: moments before and after, and digits that stay digits."""

import numpy as np
import pytest
import torch

from reproduction.deskew import deskew, deskewed
from whatwhere.data import load


def moments(image: np.ndarray) -> tuple[float, float, float]:
    """Mean row, mean column and lean (columns per row) of the ink."""
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    row, column = np.average(rows, weights=image), np.average(columns, weights=image)
    covariance = np.average((rows - row) * (columns - column), weights=image)
    return row, column, covariance / np.average((rows - row) ** 2, weights=image)


@pytest.mark.parametrize("lean", [-0.6, 0.3])
def test_a_leaning_bar_comes_upright(lean: float) -> None:
    rows, columns = torch.meshgrid(torch.arange(21.0), torch.arange(25.0), indexing="ij")
    bar = torch.exp(-((columns - 11 - lean * (rows - 9)) ** 2) / 4) * ((rows - 9).abs() < 6)
    assert moments(bar.numpy())[2] == pytest.approx(lean, abs=0.02)
    row, column, after = moments(deskew(bar[None, None])[0, 0].numpy())
    assert after == pytest.approx(0, abs=0.02)
    assert (row, column) == (pytest.approx(10, abs=0.1), pytest.approx(12, abs=0.1))


def test_digits_lean_less_and_an_empty_image_stays_empty() -> None:
    digits = load("digits")
    before = [abs(moments(image[0])[2]) for image in digits[:50].numpy()]
    after = [abs(moments(image[0])[2]) for image in deskew(digits[:50]).numpy()]
    assert np.mean(after) < 0.1 * np.mean(before)
    assert not deskew(torch.zeros(1, 1, 8, 8)).any()


def test_upright_images_keep_labels_and_order() -> None:
    digits = load("digits").subset(np.arange(30))
    upright = deskewed(digits)
    assert upright.labels is not None
    assert (upright.labels == digits.labels).all()
    assert torch.equal(upright[7], deskew(digits[:])[7])
