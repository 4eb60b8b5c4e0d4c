"""The duality gap: never below the true distance from the minimum, and 0 at the minimum."""

import pytest
import torch

import whatwhere as ww
from examples import SPECS, random_images
from raising import raises
from whatwhere.engines import get_engine
from whatwhere.errors import ConvergenceWarning, InvalidSetting
from whatwhere.inference import infer
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.gap import relative_gap
from whatwhere.spec import InferenceSpec, Phase


def problem(name: str, masked: bool) -> Problem:
    model = DeconvNet(SPECS[name], dtype=torch.float64)
    images = random_images(SPECS[name], 3, 7, 6)
    mask = None
    if masked:
        mask = (torch.rand(images.shape, generator=torch.Generator().manual_seed(1)) > 0.3).double()
    spec = InferenceSpec.coding(lam=3.0, steps=3000, tolerance=0.0, pooling_step=0.0)
    return Problem(model, images, Phase(layer=model.spec.depth), spec, mask=mask)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["2 layers", "2 layers, signed", "1 layer, colour"])
def test_the_gap_bounds_the_distance_from_the_minimum(name: str, masked: bool) -> None:
    given = problem(name, masked)
    least = get_engine("cpu").solve(given)  # which takes a thousandth of the reference's time
    minimum = given.objective(least.latents).cost
    assert float(relative_gap(given, least.latents).max()) < 1e-6
    for share in (0.0, 0.5, 0.9, 1.1):
        latents = type(least.latents)(least.latents.features * share, least.latents.pooling_params)
        cost = given.objective(latents).cost
        gap = relative_gap(given, latents)
        assert (gap >= (cost - minimum) / cost - 1e-12).all()
        assert (gap <= 1 + 1e-12).all()


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_inference_ends_once_the_gap_is_reached(engine: str) -> None:
    model = DeconvNet(SPECS["1 layer"])
    images = random_images(SPECS["1 layer"], 3, 7, 6).float()
    solutions = [
        infer(model, images, InferenceSpec.coding(lam=5.0, gap=gap), engine=engine)
        for gap in (0.2, 0.001)
    ]
    for solution, gap in zip(solutions, (0.2, 0.001), strict=True):
        assert solution.stats.gap is not None
        assert (solution.stats.gap <= gap).all()
    assert len(solutions[0].stats.step) < len(solutions[1].stats.step)
    assert infer(model, images, InferenceSpec(steps=2), engine=engine).stats.gap is None


def test_a_gap_that_is_not_reached_is_a_warning_and_needs_a_convex_penalty() -> None:
    model, images = ww.load("mnist"), ww.data.load("digits")[:2]
    with pytest.warns(ConvergenceWarning) as warned:
        infer(model, images, InferenceSpec.coding(gap=1e-5, steps=3), engine="reference")
    assert [warning.message.measure for warning in warned] == ["gap"]
    with raises(InvalidSetting, given={"gap": 1e-3, "penalty": ww.Power(alpha=0.5)}):
        InferenceSpec(gap=1e-3, penalty=ww.Power(alpha=0.5))
