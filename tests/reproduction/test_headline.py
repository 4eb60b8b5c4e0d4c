"""The headline of the paper and the quick scale: what the result files say, and what the published
models still do."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from reproduction.claims import measured_cells
from reproduction.models import read_model
from reproduction.reproduce import RESULTS, open_store
from reproduction.scale import Scale, read_scale
from reproduction.table import Cell, cells_of
from whatwhere import DeconvNet
from whatwhere.classification import describe_images, fit_svm

HEADLINE = "Gaussian pooling / Layer 2"
MODEL = "gaussian-2layers-seed0"


def headline(scale: Scale) -> Cell:
    return next(cell for cell in cells_of("pooling", scale, 3) if cell.name == HEADLINE)


def published(scale: str) -> DeconvNet:
    model = read_model(RESULTS / scale / "models.zip", MODEL)
    assert model is not None
    return model


def test_the_headline_of_the_paper_s_scale_is_0_79_with_a_deviation_of_0_02() -> None:
    scale = read_scale("paper")
    (cell,) = measured_cells([headline(scale)], open_store(RESULTS, scale)).values()
    assert len(cell.values) == 3
    assert cell.deviation is not None
    assert (round(cell.mean, 2), round(cell.deviation, 2)) == (0.79, 0.02)


@torch.no_grad()
def test_the_published_model_explains_digits_as_when_it_was_measured() -> None:
    solution = ww.infer(
        published("paper"),
        ww.data.load("digits", split="test")[:20],
        read_scale("paper").recipe().inference,
    )
    assert float(solution.stats.cost[-1].mean()) == pytest.approx(35.25124, rel=2e-5)
    assert float(solution.stats.nonzeros[-1].float().mean()) == pytest.approx(263.85, rel=5e-4)


@torch.no_grad()
def test_the_quick_scale_makes_the_errors_of_its_result_file() -> None:
    scale = read_scale("quick")
    (cell,) = measured_cells([headline(scale)], open_store(RESULTS, scale)).values()
    (result,) = cell.results
    train, test = scale.data.load()
    model, recipe = published("quick"), scale.recipe()
    x, y = (describe_images(model, images, recipe) for images in (train, test))
    predicted = fit_svm(x, train.labels, result.score.C).predict(y)
    wrong = int((predicted != np.asarray(test.labels)).sum())
    assert abs(wrong - result.score.errors) <= 2  # of 1,000
