"""What inference checks before anything reaches compiled code."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from examples import SPECS, filter_problem, random_images
from raising import raises
from whatwhere.data import load
from whatwhere.engines import ENGINES, get_engine
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.engines.reference.ista import start, step
from whatwhere.engines.reference.step_size import line_search
from whatwhere.errors import (
    BeyondRange,
    DamagedFilters,
    ImageError,
    InvalidImages,
    InvalidSetting,
    NotFinite,
    SeveralSizes,
    WrongShape,
)
from whatwhere.inference import infer
from whatwhere.inference.checks import ProbablyBytes
from whatwhere.inference.target import NothingKnown, make_target
from whatwhere.latents import Latents, PoolingParams
from whatwhere.learning import train
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import (
    Fixed,
    InferenceSpec,
    InputSpec,
    LayerSpec,
    LearningSpec,
    LineSearch,
    ModelSpec,
    Phase,
    Power,
    Recipe,
)

SPEC = SPECS["2 layers"]
FEW = InferenceSpec(steps=1)


@pytest.mark.slow
def test_malformed_latents_give_an_error_or_the_right_numbers() -> None:
    """In a process of its own: what used to happen is a corrupted heap."""
    pytest.importorskip("numba")
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "engines/malformed.py"),
        "reference",
        "20",
        "cpu",
        "40",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr[-3000:]
    for line in outcome.stdout.splitlines():
        assert "error" in line
        assert "the right numbers" in line


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_the_latents_that_used_to_corrupt_the_heap(name: str) -> None:
    model, v = DeconvNet(SPEC), random_images(SPEC).float()
    latents = infer(model, v, FEW, engine="reference").latents
    first, rest = latents.pooling_params[0], latents.pooling_params[1:]
    for changed in (
        PoolingParams(first.mu[:, :1], first.gamma[:, :1]),
        PoolingParams(first.mu[:, :0], first.gamma[:, :0]),
        PoolingParams(first.mu[:, 0], first.gamma),
        PoolingParams(first.mu[:, [0, 1, 1]], first.gamma[:, [0, 1, 1]]),
    ):
        with raises(WrongShape, name="pooling variables of layer 1") as caught:
            infer(model, v, FEW, latents=Latents(latents.p, (changed, *rest)), engine=name)
        assert caught.value.expected.startswith("[3, 2, 3, 6, 5]")
    with raises(WrongShape, name="features of layer 2"):
        infer(model, v, FEW, latents=Latents(latents.p[None], latents.pooling_params), engine=name)


@pytest.mark.parametrize("name", ENGINES)
def test_images_that_are_not_the_models_never_reach_an_engine(name: str) -> None:
    model, phase = DeconvNet(SPEC), Phase(layer=2)
    for images in (
        torch.zeros(2, 3, 9, 8),
        torch.zeros(2, 9, 8),
        torch.zeros(0, 1, 9, 8),
        torch.zeros(2, 1, 9, 8, dtype=torch.float64),
    ):
        with raises(WrongShape, name="images", given=tuple(images.shape)):
            get_engine(name).solve(Problem(model, images, phase, FEW))
    with raises(InvalidSetting, given={"phase.layer": 3}):
        get_engine(name).solve(Problem(model, torch.zeros(2, 1, 9, 8), Phase(layer=3), FEW))
    if name == "triton":
        pytest.importorskip("triton", minversion="3.6")
    with pytest.raises(InvalidImages):
        get_engine(name).filter_map(filter_problem(model, torch.zeros(2, 1, 9, 8), Latents()), 1)


@pytest.mark.parametrize("name", ["cpu", "triton"])
def test_a_model_that_an_engine_does_not_support_never_reaches_it(name: str) -> None:
    model, v = DeconvNet(SPEC, dtype=torch.bfloat16), random_images(SPEC).bfloat16()
    with raises(UnsupportedProblem, engine=name) as caught:
        get_engine(name).solve(Problem(model, v, Phase(layer=2), FEW))
    assert re.search("bfloat16|not installed", caught.value.reason)


def test_filters_that_are_not_finite_raise_an_error() -> None:
    model = DeconvNet(SPEC)
    model = model.with_filters(2, torch.full_like(model.filters[1], torch.nan))
    with raises(DamagedFilters, layer=2):
        infer(model, random_images(SPEC).float(), FEW)


def test_arrays_tensors_and_images_give_the_same_features() -> None:
    digits = load("digits", split="test").subset(np.arange(5))
    model, v = DeconvNet(ModelSpec.paper()), digits[slice(0, 5)]
    expected = infer(model, v, FEW, engine="reference", batch_size=2)
    big_endian = v.numpy().astype(">f4")
    turned = np.asfortranarray(v.numpy())
    read_only = v.numpy().copy()
    read_only.flags.writeable = False
    for images in (v.numpy(), digits, big_endian, turned, read_only):
        found = infer(model, images, FEW, engine="reference", batch_size=2)
        assert torch.equal(found.features, expected.features)


class OfTwoSizes:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, rows: slice) -> torch.Tensor:
        return torch.zeros(2, 1, 9, 8 + (rows.start > 0))


@pytest.mark.parametrize(
    ("images", "error", "fields"),
    [
        ({"a": 1}, InvalidImages, {"given": "dict"}),
        ({"images": 1}, InvalidImages, {"given": "dict"}),
        (None, InvalidImages, {"given": "NoneType"}),
        (
            np.zeros((1, 1, 8, 8), np.complex64),
            InvalidImages,
            {"given": "an array of complex64"},
        ),
        (np.zeros((8, 8, 8, 8, 1), np.float32), WrongShape, {"given": (8, 8, 8, 8, 1)}),
        (np.full((1, 1, 8, 8), np.inf), NotFinite, {"name": "the images"}),
        (OfTwoSizes(), SeveralSizes, {"sizes": ((9, 8), (9, 9))}),
    ],
)
def test_other_images_raise_an_error(
    images: object, error: type[ImageError], fields: dict[str, object]
) -> None:
    with raises(error, **fields):
        infer(DeconvNet(SPEC), images, FEW, engine="reference", batch_size=2)


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.filterwarnings("ignore:Images have values up to")
def test_an_objective_beyond_the_range_raises_an_error(name: str) -> None:
    model, v = DeconvNet(SPEC), random_images(SPEC).float()
    with raises(BeyondRange) as caught:
        infer(model, 1e20 * torch.ones_like(v), FEW, engine=name)
    assert caught.value.given["images up to"] == pytest.approx(1e20)
    with raises(BeyondRange) as caught:
        infer(model, v, InferenceSpec(steps=1, lam=1e38), engine=name)
    assert caught.value.given["lam ="] == 1e38
    assert (
        infer(model.to(torch.float64), 1e20 * v.double(), FEW, engine=name)
        .stats.cost.isfinite()
        .all()
    )


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_fixed_step_with_a_layer_of_zeros_moves_nothing(name: str) -> None:
    model, v = DeconvNet(SPEC), random_images(SPEC).float()
    model = model.with_filters(1, torch.zeros_like(model.filters[0]))
    solution = infer(model, v, InferenceSpec(steps=3, step=Fixed()), engine=name)
    assert not solution.features.any()
    torch.testing.assert_close(solution.stats.cost[-1], 2.5 * v.square().sum((1, 2, 3)))


def test_batches_of_no_images_raise_an_error() -> None:
    with raises(InvalidSetting, given={"batch_size": 0}):
        infer(DeconvNet(SPEC), random_images(SPEC).float(), batch_size=0)


def test_the_reference_counts_denormal_numbers_as_zero_and_leaves_the_caller_s_setting() -> None:
    model, v = DeconvNet(SPEC), torch.full((1, 1, 9, 8), 1e-40)
    for before in (False, True):
        torch.set_flush_denormal(before)
        try:
            solution = infer(model, v, FEW, engine="reference")
            assert (float(torch.tensor([1e-40]) * 1) == 0) == before
        finally:
            torch.set_flush_denormal(False)
        assert not solution.stats.step.any(), "there is nothing to explain in such an image"


def model_of_white(white: float) -> DeconvNet:
    return DeconvNet(
        ModelSpec(layers=(LayerSpec(maps=3, filter_size=3),), input=InputSpec(white=white))
    )


def test_bytes_as_floats_give_a_warning_that_names_the_models_white() -> None:
    images = torch.rand(2, 1, 8, 8) * 255
    with pytest.warns(ProbablyBytes) as caught:
        infer(model_of_white(1.0), images, FEW, engine="reference")
    assert [one.message.white for one in caught] == [1.0]
    assert caught[0].message.largest == float(images[:1].max())
    assert [warning.filename for warning in caught] == [__file__], "the line of the program"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infer(model_of_white(1.0), images / 255, FEW, engine="reference")
        infer(model_of_white(255.0), images, FEW, engine="reference")


def test_integers_have_the_units_of_the_model_whatever_their_type() -> None:
    """A 16-bit picture and its 8-bit version have the same codes, up to the quantisation, and so
    do scaled floats."""
    deep = (
        torch.randint(0, 65536, (2, 8, 8), generator=torch.Generator().manual_seed(0))
        .numpy()
        .astype(np.uint16)
    )
    exact, coarse = deep / np.float32(65535), np.rint(deep / 257).astype(np.uint8)
    for white in (1.0, 20.0):
        model, spec = (
            model_of_white(white),
            InferenceSpec(lam=5.0 / white, steps=10, pooling_step=0.1 / white),
        )
        codes = [
            infer(model, images, spec, engine="reference").features / white
            for images in (
                load(deep),
                load(coarse),
                torch.from_numpy(exact * white)[:, None].float(),
            )
        ]
        torch.testing.assert_close(codes[0], codes[2], rtol=0, atol=1e-5)
        torch.testing.assert_close(codes[0], codes[1], rtol=0, atol=0.02)
        assert codes[0].count_nonzero() > 0


# Masks and input stages at the front door: what the model explains, and that unknown pixels have no
# influence ----


LAYERS = (LayerSpec(maps=4, filter_size=3), LayerSpec(maps=5, filter_size=3, fan_in=2))
STAGES = {
    "plain": ModelSpec(layers=LAYERS),
    "on and off, contrast": ModelSpec(
        layers=LAYERS, input=InputSpec(kind="onoff", sigma=1.0, contrast=0.8)
    ),
    "high-pass, colour": ModelSpec(
        layers=LAYERS, channels=3, nonnegative=False, input=InputSpec(kind="highpass")
    ),
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
        inference=InferenceSpec(
            lam=3.0, penalty=Power(alpha=0.5), steps=3, step=LineSearch(per="batch")
        ),
        epochs=2,
    )
    return Recipe(model=spec, learning=(learning, learning), batch_size=2)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("name", STAGES)
def test_unknown_pixels_change_not_one_bit(name: str, engine: str) -> None:
    if engine == "cpu":
        pytest.importorskip("numba")
    spec = STAGES[name]
    model, v, weight = (
        DeconvNet(spec, dtype=torch.float64),
        images(spec),
        mask(channels=spec.channels),
    )
    solution = infer(model, v, SETTINGS, mask=weight, engine=engine)
    assert solution.engine == engine
    other = infer(
        model, torch.where(weight > 0, v, float("nan")), SETTINGS, mask=weight, engine=engine
    )
    assert torch.equal(solution.features, other.features)
    assert torch.equal(solution.reconstruction, other.reconstruction)
    assert solution.reconstruction.shape == v.shape


@pytest.mark.parametrize("name", STAGES)
def test_nan_is_an_unknown_pixel_in_inference_and_in_training(name: str) -> None:
    spec = STAGES[name]
    known = mask(channels=spec.channels) > 0
    v = torch.where(known, images(spec), float("nan"))
    model = DeconvNet(spec, dtype=torch.float64)
    assert torch.equal(
        infer(model, v, SETTINGS).features,
        infer(model, images(spec), SETTINGS, mask=known.double()).features,
    )
    by_nan = train(v.float(), recipe(spec)).model
    by_mask = train(images(spec).float(), recipe(spec), mask=known.float()).model
    assert by_nan == by_mask
    assert by_nan != train(images(spec).float(), recipe(spec)).model


@pytest.mark.parametrize("name", STAGES)
def test_the_cpu_engine_agrees_with_the_reference_through_infer(name: str) -> None:
    pytest.importorskip("numba")
    spec = STAGES[name]
    model, v, weight = (
        DeconvNet(spec, dtype=torch.float64),
        images(spec),
        mask(channels=spec.channels),
    )
    ours = infer(model, v, SETTINGS, mask=weight, engine="cpu")
    theirs = infer(model, v, SETTINGS, mask=weight, engine="reference")
    torch.testing.assert_close(ours.features, theirs.features)
    torch.testing.assert_close(ours.reconstruction, theirs.reconstruction)
    assert ours.features.count_nonzero() > 0


def test_a_mask_of_ones_changes_nothing_but_rounding() -> None:
    spec = STAGES["plain"]
    model, v = DeconvNet(spec, dtype=torch.float64), images(spec)
    torch.testing.assert_close(
        infer(model, v, SETTINGS, mask=torch.ones_like(v)).features,
        infer(model, v, SETTINGS, engine="reference").features,
    )


def test_the_masked_step_follows_the_gradient_of_the_masked_objective() -> None:
    """Algorithm 1's step on p by autograd of λ/2 ‖M ⊙ (Rp - v)‖² with the exact line search."""
    spec = STAGES["plain"]
    model, v, weight = DeconvNet(spec, dtype=torch.float64), images(spec), mask()
    settings = InferenceSpec(lam=3.0, steps=4)
    problem = Problem(
        model, v, Phase(layer=2), settings, infer(model, v, settings, mask=weight).latents, weight
    )
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
    spec = STAGES["plain"]
    v, weight = images(spec), mask()
    problem = Problem(
        DeconvNet(spec, dtype=torch.float64), v, Phase(layer=2), SETTINGS, mask=weight
    )
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
        layers=(LayerSpec(maps=40, filter_size=3, pool_size=1),),
        input=InputSpec(kind="onoff", sigma=1.0, contrast=1.0),
    )
    v = 200 * images(spec) - 50
    solution = infer(
        DeconvNet(spec, dtype=torch.float64),
        v,
        InferenceSpec(lam=1e4, steps=300, step=LineSearch(momentum=True)),
    )
    assert (solution.reconstruction - v).square().mean() < 0.05 * (v - v.mean()).square().mean()
    again = solution.decoder.decode(solution.latents)  # type: ignore[union-attr]
    assert torch.equal(again, solution.reconstruction)


NOT_WEIGHTS = {"given": "a mask with negative, NaN or infinite values"}
BAD: dict[str, tuple[object, type[ImageError], dict[str, object]]] = {
    "shape": (torch.ones(3, 1, 9, 9), WrongShape, {"expected": "[3, 1, 9, 8]"}),
    "number": (torch.ones(2, 1, 9, 8), WrongShape, {"expected": "[3, 1, 9, 8]"}),
    "negative": (-torch.ones(3, 1, 9, 8), InvalidImages, NOT_WEIGHTS),
    "nan": (torch.full((3, 1, 9, 8), float("nan")), InvalidImages, NOT_WEIGHTS),
    "empty": (torch.zeros(3, 1, 9, 8), NothingKnown, {"index": 0}),
    "complex": (
        torch.ones(3, 1, 9, 8, dtype=torch.complex64),
        InvalidImages,
        {"given": "a mask of torch.complex64"},
    ),
    "objects": (
        np.ones((3, 1, 9, 8), dtype=object),
        InvalidImages,
        {"given": "a mask of object"},
    ),
    "text": ("mask.png", InvalidImages, {"given": "a mask of str"}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_mask_raises(name: str) -> None:
    weight, error, fields = BAD[name]
    spec = STAGES["plain"]
    with raises(error, **fields):
        infer(DeconvNet(spec, dtype=torch.float64), images(spec), SETTINGS, mask=weight)


def test_a_mask_may_be_an_array_of_any_byte_order() -> None:
    spec = STAGES["plain"]
    model, weight = DeconvNet(spec, dtype=torch.float64), mask()
    expected = infer(model, images(spec), SETTINGS, mask=weight)
    given = weight.numpy().astype(">f8")
    assert torch.equal(infer(model, images(spec), SETTINGS, mask=given).features, expected.features)


@pytest.mark.parametrize("scale", [1e20, 1e38])
def test_images_whose_contrast_is_out_of_range_raise(scale: float) -> None:
    spec = STAGES["on and off, contrast"]
    with raises(BeyondRange, remedy="Scale them to [0, 1]."):
        infer(DeconvNet(spec), scale * images(spec).float(), SETTINGS)


def test_the_target_keeps_images_that_need_nothing_as_they_are() -> None:
    spec = STAGES["plain"]
    v = images(spec)
    target = make_target(DeconvNet(spec, dtype=torch.float64), v)
    assert target.mask is None
    assert torch.equal(target.v, v)
