"""Masks and input stages at the front door: what the model explains, and that unknown pixels have no influence."""

import numpy as np
import pytest
import torch

from whatwhere.errors import ImageError
from whatwhere.inference import infer
from whatwhere.inference.ista import start, step
from whatwhere.inference.step_size import line_search
from whatwhere.inference.target import make_target
from whatwhere.learning import train
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import InferenceSpec, InputSpec, LayerSpec, LearningSpec, LineSearch, ModelSpec, Phase, Recipe

LAYERS = (LayerSpec(maps=4, filter_size=3), LayerSpec(maps=5, filter_size=3, fan_in=2))
SPECS = {
    "plain": ModelSpec(layers=LAYERS),
    "on and off, contrast": ModelSpec(layers=LAYERS, input=InputSpec(kind="onoff", sigma=1.0, contrast=0.8)),
    "high-pass, colour": ModelSpec(layers=LAYERS, channels=3, nonnegative=False, input=InputSpec(kind="highpass")),
}
SETTINGS = InferenceSpec(lam=3.0, steps=6)


def images(spec: ModelSpec, n: int = 3, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, spec.channels, 9, 8, generator=generator, dtype=torch.float64)


def mask(n: int = 3, channels: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    weight = torch.rand(n, channels, 9, 8, generator=generator, dtype=torch.float64)
    return weight * (weight > 0.4)


def recipe(spec: ModelSpec) -> Recipe:
    learning = LearningSpec(
        inference=InferenceSpec(lam=3.0, alpha=0.5, steps=3, step=LineSearch(per="batch")), epochs=2
    )
    return Recipe(model=spec, learning=(learning, learning), batch_size=2)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("name", SPECS)
def test_unknown_pixels_change_not_one_bit(name: str, engine: str) -> None:
    if engine == "cpu":
        pytest.importorskip("numba")
    spec = SPECS[name]
    model, v, weight = DeconvNet(spec, dtype=torch.float64), images(spec), mask(channels=spec.channels)
    solution = infer(model, v, SETTINGS, mask=weight, engine=engine)
    assert solution.engine == engine
    other = infer(model, torch.where(weight > 0, v, float("nan")), SETTINGS, mask=weight, engine=engine)
    assert torch.equal(solution.features, other.features)
    assert torch.equal(solution.reconstruction, other.reconstruction)
    assert solution.reconstruction.shape == v.shape


@pytest.mark.parametrize("name", SPECS)
def test_nan_is_an_unknown_pixel_in_inference_and_in_training(name: str) -> None:
    spec = SPECS[name]
    known = mask(channels=spec.channels) > 0
    v = torch.where(known, images(spec), float("nan"))
    model = DeconvNet(spec, dtype=torch.float64)
    assert torch.equal(
        infer(model, v, SETTINGS).features, infer(model, images(spec), SETTINGS, mask=known.double()).features
    )
    by_nan = train(recipe(spec), v.float()).model
    by_mask = train(recipe(spec), images(spec).float(), mask=known.float()).model
    assert by_nan == by_mask
    assert by_nan != train(recipe(spec), images(spec).float()).model


@pytest.mark.parametrize("name", SPECS)
def test_the_cpu_engine_agrees_with_the_reference_through_infer(name: str) -> None:
    pytest.importorskip("numba")
    spec = SPECS[name]
    model, v, weight = DeconvNet(spec, dtype=torch.float64), images(spec), mask(channels=spec.channels)
    ours = infer(model, v, SETTINGS, mask=weight, engine="cpu")
    theirs = infer(model, v, SETTINGS, mask=weight, engine="reference")
    torch.testing.assert_close(ours.features, theirs.features)
    torch.testing.assert_close(ours.reconstruction, theirs.reconstruction)
    assert ours.features.count_nonzero() > 0


def test_a_mask_of_ones_changes_nothing_but_rounding() -> None:
    spec = SPECS["plain"]
    model, v = DeconvNet(spec, dtype=torch.float64), images(spec)
    torch.testing.assert_close(
        infer(model, v, SETTINGS, mask=torch.ones_like(v)).features,
        infer(model, v, SETTINGS, engine="reference").features,
    )


def test_the_masked_step_follows_the_gradient_of_the_masked_objective() -> None:
    """Algorithm 1's step on p by autograd of λ/2 ‖M ⊙ (Rp - v)‖² with the exact line search."""
    spec = SPECS["plain"]
    model, v, weight = DeconvNet(spec, dtype=torch.float64), images(spec), mask()
    settings = InferenceSpec(lam=3.0, steps=4)
    problem = Problem(model, v, Phase(layer=2), settings, infer(model, v, settings, mask=weight).latents, weight)
    state, model = start(problem), problem.sized
    p, U = state.p.clone().requires_grad_(), model.weights(state.theta)
    smooth = settings.lam / 2 * (weight * (model.reconstruct(p, U) - v)).square().sum((1, 2, 3))
    (gradient,) = torch.autograd.grad(smooth.sum(), p)  # λ g
    moved, measured, beta = step(problem, state)
    size = beta.view(-1, 1, 1, 1)
    expected = (state.p - size * gradient - size).clamp(min=0)
    torch.testing.assert_close(moved.p, expected)
    torch.testing.assert_close(measured.reconstruction, smooth.detach())


def test_the_masked_line_search_is_exact() -> None:
    """No other step along the gradient has a lower smooth term."""
    spec = SPECS["plain"]
    v, weight = images(spec), mask()
    problem = Problem(DeconvNet(spec, dtype=torch.float64), v, Phase(layer=2), SETTINGS, mask=weight)
    model, state = problem.sized, start(problem)
    U = model.weights(state.theta)
    g = model.propagate(weight * weight * (model.reconstruct(state.p, U) - v), U)
    beta = line_search(problem, g, U)

    def smooth(scale: float) -> torch.Tensor:
        p = state.p - scale * SETTINGS.lam * beta * g
        return (weight * (model.reconstruct(p, U) - v)).square().sum((1, 2, 3))

    best = smooth(1.0)
    for scale in (0.0, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert (smooth(scale) > best).all()


def test_an_onoff_model_reconstructs_in_the_units_of_the_image() -> None:
    spec = ModelSpec(
        layers=(LayerSpec(maps=40, filter_size=3, pool_size=1),), input=InputSpec(kind="onoff", sigma=1.0, contrast=1.0)
    )
    v = 200 * images(spec) - 50
    solution = infer(
        DeconvNet(spec, dtype=torch.float64), v, InferenceSpec(lam=1e4, steps=300, step=LineSearch(momentum=True))
    )
    assert (solution.reconstruction - v).square().mean() < 0.05 * (v - v.mean()).square().mean()
    again = solution.decoder.decode(solution.latents)  # type: ignore[union-attr]
    assert torch.equal(again, solution.reconstruction)


BAD = {
    "shape": (torch.ones(3, 1, 9, 9), r"expected \[3, 1, 9, 8\]"),
    "number": (torch.ones(2, 1, 9, 8), r"expected \[3"),
    "negative": (-torch.ones(3, 1, 9, 8), "weights ≥ 0"),
    "nan": (torch.full((3, 1, 9, 8), float("nan")), "weights ≥ 0"),
    "empty": (torch.zeros(3, 1, 9, 8), "no known pixel"),
    "complex": (torch.ones(3, 1, 9, 8, dtype=torch.complex64), "a mask of torch.complex64"),
    "objects": (np.ones((3, 1, 9, 8), dtype=object), "a mask of object"),
    "text": ("mask.png", "a mask of str"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_mask_raises(name: str) -> None:
    weight, message = BAD[name]
    spec = SPECS["plain"]
    with pytest.raises(ImageError, match=message):
        infer(DeconvNet(spec, dtype=torch.float64), images(spec), SETTINGS, mask=weight)


def test_a_mask_may_be_an_array_of_any_byte_order() -> None:
    spec = SPECS["plain"]
    model, weight = DeconvNet(spec, dtype=torch.float64), mask()
    expected = infer(model, images(spec), SETTINGS, mask=weight)
    given = weight.numpy().astype(">f8")
    assert torch.equal(infer(model, images(spec), SETTINGS, mask=given).features, expected.features)


@pytest.mark.parametrize("scale", [1e20, 1e38])
def test_images_whose_contrast_is_out_of_range_raise(scale: float) -> None:
    spec = SPECS["on and off, contrast"]
    with pytest.raises(ImageError, match="scale them"):
        infer(DeconvNet(spec), scale * images(spec).float(), SETTINGS)


def test_the_target_keeps_images_that_need_nothing_as_they_are() -> None:
    spec = SPECS["plain"]
    v = images(spec)
    target = make_target(DeconvNet(spec, dtype=torch.float64), v)
    assert target.mask is None
    assert torch.equal(target.v, v)
