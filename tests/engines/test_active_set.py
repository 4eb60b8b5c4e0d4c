"""Newton steps on the features in use reach the minimum: its conditions hold, and long runs of the
CPU engine are never lower."""

from dataclasses import replace

import pytest
import torch

from examples import random_images
from whatwhere.engines import active_set, get_engine
from whatwhere.engines.reference import ReferenceEngine
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.gap import relative_gap
from whatwhere.spec import InferenceSpec, LayerSpec, LineSearch, ModelSpec, Phase, Power, Sum


def spec(nonnegative: bool, channels: int = 1) -> ModelSpec:
    layer = LayerSpec(maps=6, filter_size=(4, 3), pool_size=1, pooling=Sum())
    return ModelSpec(layers=(layer,), channels=channels, nonnegative=nonnegative)


def problem(nonnegative: bool, channels: int, masked: bool, steps: int) -> Problem:
    model = DeconvNet(spec(nonnegative, channels), seed=1, dtype=torch.float64)
    images = random_images(model.spec, 2, 11, 9) - 0.3
    mask = torch.ones_like(images[:, :1])
    mask[:, :, 3:5, 2:6] = 0.0
    settings = InferenceSpec(lam=6.0, steps=steps, step=LineSearch(momentum=True))
    return Problem(model, images, Phase(layer=1), settings, mask=mask if masked else None)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("nonnegative", "channels"), [(True, 1), (False, 1), (False, 2)])
def test_the_minimum_is_reached(nonnegative: bool, channels: int, masked: bool) -> None:
    asked = problem(nonnegative, channels, masked, 60)
    near = ReferenceEngine().solve(asked).latents
    latents = active_set.finish(asked, near, 1e-11)
    assert (relative_gap(asked, latents) <= 1e-11).all()
    assert (relative_gap(asked, near) > 1e-7).any(), "there was something to do"
    lowest = get_engine("cpu").solve(
        replace(asked, spec=replace(asked.spec, steps=3000), latents=Latents())
    )
    cost = asked.objective(latents).cost
    assert (cost <= asked.objective(lowest.latents).cost * (1 + 1e-12)).all()
    # where a feature is in use, the slope of the data term is the penalty's
    p = latents.features.clone().requires_grad_()
    data = asked.objective(Latents(p, latents.pooling_params)).reconstruction.sum()
    (slope,) = torch.autograd.grad(data, p)
    used = p != 0
    torch.testing.assert_close(slope[used], -p.sign()[used].detach(), rtol=1e-5, atol=1e-5)
    assert (-slope if nonnegative else slope.abs()).max() <= 1 + 1e-5


def test_a_gap_of_coding_is_reached_in_few_steps() -> None:
    model = DeconvNet(spec(False), seed=1, dtype=torch.float64)
    images = random_images(model.spec, 3, 11, 9)
    images[1] = 0.0
    coding = InferenceSpec.coding(lam=6.0, gap=1e-10)
    solution = infer(model, images, coding, engine="reference")
    assert solution.stats.gap is not None
    assert (solution.stats.gap <= 1e-10).all()
    assert len(solution.stats.step) < 500
    torch.testing.assert_close(
        solution.stats.cost[-1],
        Problem(model, images, Phase(layer=1), replace(coding, tolerance=0.0))
        .objective(solution.latents)
        .cost,
    )


def test_other_problems_are_named() -> None:
    asked = problem(False, 1, False, 5)
    assert active_set.unsupported_reason(asked) is None
    pooled = DeconvNet(ModelSpec(layers=(LayerSpec(maps=2),)), dtype=torch.float64)
    other = Problem(pooled, asked.images, Phase(layer=1), asked.spec)
    assert active_set.unsupported_reason(other) == "it needs one layer without pooling"
    other = replace(asked, spec=replace(asked.spec, penalty=Power(alpha=0.5)))
    assert active_set.unsupported_reason(other) == "it needs the penalty |p|"
