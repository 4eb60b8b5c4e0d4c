"""The paper's trained model through the fast engines: 50 steps beside float64, and the test error of its features."""

from dataclasses import replace

import pytest
import torch

from whatwhere.data import load as load_data
from whatwhere.inference import infer
from whatwhere.learning import load
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Recipe

FIFTY = InferenceSpec(steps=50)
ENGINES = [
    pytest.param("cpu", marks=pytest.mark.slow),
    pytest.param(
        "triton",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]


def on_its_device(engine: str) -> DeconvNet:
    pytest.importorskip("numba" if engine == "cpu" else "triton")
    return load("mnist").to("cuda" if engine == "triton" else "cpu")


@pytest.mark.parametrize("engine", ENGINES)
def test_after_50_steps_the_cost_is_within_a_thousandth_of_float64(engine: str) -> None:
    model = on_its_device(engine)
    v = load_data("digits", split="test")[: 500 if engine == "triton" else 4]
    found = infer(model, v, FIFTY, engine=engine)
    truth = infer(model.to(torch.float64), v, FIFTY, engine="reference")
    cost, exact = (solution.stats.cost[-1].sum().double() for solution in (found, truth))
    assert abs(cost / exact - 1) < 1e-3
    difference = (found.features.double() - truth.features).norm() / truth.features.norm()
    assert difference < 1e-3  # measured on the device: 9e-5


@pytest.mark.parametrize("engine", ENGINES[1:])  # of the CPU engine, features that agree so closely are enough
def test_the_test_error_is_that_of_the_reference(engine: str) -> None:
    pytest.importorskip("sklearn")
    from whatwhere.classification import describe_images, protocol

    model = on_its_device(engine)
    training, test = load_data("digits", split="train"), load_data("digits", split="test")
    recipe = replace(Recipe.paper(), inference=replace(FIFTY, steps=20))
    rates = []
    for name in (engine, "reference"):
        x, x_test = (describe_images(model, images, recipe, engine=name) for images in (training, test))
        rates.append(protocol.evaluate(x, training.labels, x_test, test.labels, 30.0).error)
    assert rates[0] < 0.3, "it tells digits apart"
    assert abs(rates[0] - rates[1]) <= 5e-4
