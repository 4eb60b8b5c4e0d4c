"""Rows from the maps of any callable, in a pipeline and in a labelling session."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.errors import SpecError


def strokes(pictures: Tensor) -> list[Tensor]:
    """How much a picture changes to the right and down, and its brightness at half the size."""
    changes = torch.cat(
        [pictures.diff(dim=3).abs()[..., :-1, :], pictures.diff(dim=2).abs()[..., :-1]], 1
    )
    return [changes, nn.functional.avg_pool2d(pictures, 2)]


def test_rows_are_the_means_of_cells_with_unit_length() -> None:
    picture = torch.zeros(1, 1, 4, 4)
    picture[0, 0, :2] = torch.tensor([3.0, 3.0, 4.0, 4.0])
    rows = ww.MapFeatures(lambda x: [x, 2 * x[..., :2]], cells=2).fit_transform(picture)
    np.testing.assert_allclose(rows, [[0.6, 0.8, 0, 0, 0.5**0.5, 0.5**0.5, 0, 0]], rtol=1e-6)


def test_a_pipeline_and_a_labelling_session_take_the_same_callable() -> None:
    digits = ww.data.load("digits")[:300]
    labels = ww.data.load("digits").labels[:300]
    pipeline = make_pipeline(
        ww.MapFeatures(strokes, cells=7), LogisticRegression(C=100, max_iter=500)
    )
    assert pipeline.fit(digits[:200], labels[:200]).score(digits[200:], labels[200:]) > 0.6
    session = ww.Labelling(digits[:60], features=strokes)
    assert session.rows.shape == (60, 15), "three maps of the whole picture and of its quarters"
    session.label({0: "a", 1: "b"})
    assert set(session.predict().classes) <= {"a", "b"}


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (ww.MapFeatures("network"), "expected a callable"),
        (ww.MapFeatures(nn.Conv2d(1, 2, 3)), "Conv2d is in training mode"),
        (ww.MapFeatures(strokes, cells=0), "cells = 0"),
    ],
)
def test_wrong_settings_raise(estimator: ww.MapFeatures, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        estimator.fit(torch.rand(2, 1, 9, 9))
