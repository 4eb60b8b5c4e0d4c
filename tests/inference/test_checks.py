"""What inference checks before anything reaches compiled code."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from examples import SPECS, filter_problem, random_images
from whatwhere.data import load
from whatwhere.errors import EngineError, ImageError, SpecError
from whatwhere.inference import infer
from whatwhere.inference.engines import ENGINES, get_engine
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import Fixed, InferenceSpec, InputSpec, LayerSpec, ModelSpec, Phase

SPEC = SPECS["2 layers"]
FEW = InferenceSpec(steps=1)


@pytest.mark.parametrize(
    ("engine", "examples"),
    [("reference", 40), ("cpu", 100), pytest.param("triton", 12, marks=pytest.mark.slow)],
)
def test_malformed_latents_give_an_error_or_the_right_numbers(engine: str, examples: int) -> None:
    """In a process of its own: what used to happen is a corrupted heap."""
    pytest.importorskip({"cpu": "numba", "triton": "triton"}.get(engine, "torch"))
    command = [sys.executable, str(Path(__file__).parent / "malformed.py"), engine, str(examples)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"TRITON_INTERPRET": "1"} if engine == "triton" else {})
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr[-3000:]
    assert "error" in outcome.stdout
    assert "the right numbers" in outcome.stdout


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
        with pytest.raises(ImageError, match=r"for layer 1; those of these images have \[3, 2, 3, 6, 5\]"):
            infer(model, v, FEW, latents=Latents(latents.p, (changed, *rest)), engine=name)
    with pytest.raises(ImageError, match="for layer 2"):
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
        with pytest.raises(ImageError, match="were given; expected"):
            get_engine(name).solve(Problem(model, images, phase, FEW))
    with pytest.raises(SpecError, match="layer 3"):
        get_engine(name).solve(Problem(model, torch.zeros(2, 1, 9, 8), Phase(layer=3), FEW))
    with pytest.raises(ImageError, match="without features"):
        get_engine(name).filter_map(filter_problem(model, torch.zeros(2, 1, 9, 8), Latents()), 1)


@pytest.mark.parametrize("name", ["cpu", "triton"])
def test_a_model_that_an_engine_does_not_support_never_reaches_it(name: str) -> None:
    model, v = DeconvNet(SPEC, dtype=torch.bfloat16), random_images(SPEC).bfloat16()
    with pytest.raises(EngineError, match=f"engine '{name}' does not support this: .*(bfloat16|not installed)"):
        get_engine(name).solve(Problem(model, v, Phase(layer=2), FEW))


def test_filters_that_are_not_finite_raise_an_error() -> None:
    model = DeconvNet(SPEC)
    model = model.with_filters(2, torch.full_like(model.filters[1], torch.nan))
    with pytest.raises(SpecError, match="not finite at layer 2"):
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
    ("images", "message"),
    [
        ([[0.0]], "list was given"),
        ({"a": 1}, "dict was given"),
        ("digits", "str was given"),
        (None, "NoneType was given"),
        (np.zeros((1, 1, 8, 8), np.complex64), "array of complex64 was given"),
        (np.zeros((8, 8), np.float32), r"shape \[8, 8\]"),
        (np.full((1, 1, 8, 8), np.inf), "NaN or Inf"),
        (OfTwoSizes(), "9×9 pixels were given after others of 9×8"),
    ],
)
def test_other_images_raise_an_error(images: object, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        infer(DeconvNet(SPEC), images, FEW, engine="reference", batch_size=2)


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.filterwarnings("ignore:images with values up to")
def test_an_objective_beyond_the_range_raises_an_error(name: str) -> None:
    model, v = DeconvNet(SPEC), random_images(SPEC).float()
    with pytest.raises(ImageError, match=r"images up to 1e\+20.*scale the images"):
        infer(model, 1e20 * torch.ones_like(v), FEW, engine=name)
    with pytest.raises(SpecError, match=r"lam = 1e\+38.*smaller lam"):
        infer(model, v, InferenceSpec(steps=1, lam=1e38), engine=name)
    assert infer(model.to(torch.float64), 1e20 * v.double(), FEW, engine=name).stats.cost.isfinite().all()


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_fixed_step_with_a_layer_of_zeros_moves_nothing(name: str) -> None:
    model, v = DeconvNet(SPEC), random_images(SPEC).float()
    model = model.with_filters(1, torch.zeros_like(model.filters[0]))
    solution = infer(model, v, InferenceSpec(steps=3, step=Fixed()), engine=name)
    assert not solution.features.any()
    torch.testing.assert_close(solution.stats.cost[-1], 2.5 * v.square().sum((1, 2, 3)))


def test_batches_of_no_images_raise_an_error() -> None:
    with pytest.raises(SpecError, match="batch_size = 0"):
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
    return DeconvNet(ModelSpec(layers=(LayerSpec(maps=3, filter_size=3),), input=InputSpec(white=white)))


def test_bytes_as_floats_give_a_warning_that_names_the_models_white() -> None:
    images = torch.rand(2, 1, 8, 8) * 255
    with pytest.warns(UserWarning, match="values up to 2.* were given to a model whose white is 1"):
        infer(model_of_white(1.0), images, FEW, engine="reference")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infer(model_of_white(1.0), images / 255, FEW, engine="reference")
        infer(model_of_white(255.0), images, FEW, engine="reference")


def test_integers_have_the_units_of_the_model_whatever_their_type() -> None:
    """A 16-bit picture and its 8-bit version have the same codes, up to the quantisation, and so do scaled floats."""
    deep = torch.randint(0, 65536, (2, 8, 8), generator=torch.Generator().manual_seed(0)).numpy().astype(np.uint16)
    exact, coarse = deep / np.float32(65535), np.rint(deep / 257).astype(np.uint8)
    for white in (1.0, 20.0):
        model, spec = model_of_white(white), InferenceSpec(lam=5.0 / white, steps=10, pooling_step=0.1 / white)
        codes = [
            infer(model, images, spec, engine="reference").features / white
            for images in (load(deep), load(coarse), torch.from_numpy(exact * white)[:, None].float())
        ]
        torch.testing.assert_close(codes[0], codes[2], rtol=0, atol=1e-5)
        torch.testing.assert_close(codes[0], codes[1], rtol=0, atol=0.02)
        assert codes[0].count_nonzero() > 0
