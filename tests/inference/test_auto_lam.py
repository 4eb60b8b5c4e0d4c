"""λ chosen from the images: the formulas evaluated literally, and codes just below and above the largest penalty."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny_training as tiny
from examples import SPECS, random_images
from whatwhere.errors import ImageError, SpecError
from whatwhere.inference import auto_lam, infer, noise_level, resolve_lam
from whatwhere.inference.auto_lam import SAMPLE, sample_rows
from whatwhere.model import DeconvNet
from whatwhere.spec import AutoLam, InferenceSpec, InputSpec, LayerSpec, ModelSpec, Phase
from whatwhere.spec.toml import read_recipe


def smooth_picture(height: int = 128, width: int = 160) -> Tensor:
    y, x = torch.meshgrid(torch.arange(height) / 40, torch.arange(width) / 30, indexing="ij")
    return (0.5 + 0.3 * torch.sin(x) * torch.cos(y) + 0.05 * x)[None, None].double()


def noise(shape: torch.Size, sigma: float, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, sigma, shape))


@pytest.mark.parametrize("sigma", [0.01, 0.1, 2.0])
def test_the_noise_level_of_a_smooth_picture_is_found_within_5_percent(sigma: float) -> None:
    v = smooth_picture()
    assert noise_level(v + noise(v.shape, sigma)) == pytest.approx(sigma, rel=0.05)


def test_unknown_pixels_are_left_out_of_the_noise_level() -> None:
    v = smooth_picture()
    noisy = v + noise(v.shape, 0.1)
    unknown = torch.rand(v.shape, generator=torch.Generator().manual_seed(0)) < 0.2
    level = noise_level(torch.where(unknown, math.nan, noisy))
    assert level == pytest.approx(0.1, rel=0.05)
    assert noise_level(torch.where(unknown, 1e6, noisy), (~unknown).double()) == level
    with pytest.raises(ImageError, match="no block of 2 × 2 known pixels"):
        noise_level(torch.full((1, 1, 4, 4), math.nan))


KINDS = ["1 layer", "2 layers", "2 layers, max", "2 layers, signed", "3 layers, colour"]


@pytest.mark.parametrize("name", KINDS)
def test_at_a_share_of_1_the_code_becomes_empty(name: str) -> None:
    model = DeconvNet(SPECS[name], seed=1).to(torch.float64)
    images = random_images(model.spec)
    share = 0.5
    largest = 1 / (resolve_lam(model, images, InferenceSpec(lam=AutoLam(share=share))).lam / (1 / share))
    for sparsity, empty in ((1.001 * largest, True), (0.999 * largest, False)):
        features = infer(model, images, InferenceSpec(lam=1 / sparsity, steps=20), engine="reference").features
        assert bool((features == 0).all()) == empty


def test_the_share_is_that_of_the_known_pixels() -> None:
    model = DeconvNet(SPECS["1 layer"], seed=1).to(torch.float64)
    images = random_images(model.spec)
    mask = torch.ones_like(images)
    mask[:, :, :, 4:] = 0
    spec = InferenceSpec(lam=AutoLam(share=0.999))
    for value in (images, torch.where(mask > 0, images, 1e6)):
        solution = infer(model, value, spec, mask=mask, engine="reference")
        assert 0 < int(solution.features.count_nonzero()) < 10
        assert solution.lam == resolve_lam(model, images, spec, mask=mask).lam


def test_lam_is_chosen_by_the_formula_of_the_noise_level() -> None:
    """Filters of one pixel without pooling: R is the identity, and every length is 1."""
    layer = LayerSpec(maps=1, filter_size=1, pool_size=1, pooling_kind="sum")
    model = DeconvNet(ModelSpec(layers=(layer,)), seed=0).to(torch.float64)
    assert model.filters[0].flatten().tolist() == [1.0]
    v = smooth_picture()
    images = v + noise(v.shape, 0.05)
    expected = auto_lam.NOISE_FACTOR * 0.05**2 / float(images.square().mean().sqrt())
    assert 1 / resolve_lam(model, images, InferenceSpec(lam=AutoLam(noise=0.05))).lam == pytest.approx(
        expected,
        rel=0.03,  # the gain is measured with random numbers
    )
    estimated = resolve_lam(model, images, InferenceSpec(lam=AutoLam())).lam
    assert 1 / estimated == pytest.approx(expected, rel=0.1)
    assert infer(model, images, InferenceSpec(lam=AutoLam(), steps=1)).lam == estimated


def test_the_noise_is_that_of_the_image_not_of_the_signal() -> None:
    layer = LayerSpec(maps=4, filter_size=3)
    v = smooth_picture(64, 64)
    images = v + noise(v.shape, 0.02)
    lams = []
    for contrast in (0.0, 1.0):
        stage = InputSpec(kind="highpass", contrast=contrast)
        model = DeconvNet(ModelSpec(layers=(layer,), nonnegative=False, input=stage), seed=0).to(torch.float64)
        given = resolve_lam(model, images, InferenceSpec(lam=AutoLam(noise=0.02))).lam
        assert resolve_lam(model, images, InferenceSpec(lam=AutoLam())).lam == pytest.approx(given, rel=0.1)
        lams.append(given)
    assert lams[1] < 0.5 * lams[0], "contrast normalisation amplifies the noise"


def test_images_without_noise_raise_an_error_that_says_what_to_give() -> None:
    model = DeconvNet(SPECS["1 layer"], seed=0).to(torch.float64)
    with pytest.raises(ImageError, match=r"without noise.*give AutoLam a noise or a share, or lam"):
        infer(model, torch.ones(2, 1, 9, 8), InferenceSpec(lam=AutoLam()))
    with pytest.raises(ImageError, match="no feature correlates with"):
        infer(model, torch.zeros(2, 1, 9, 8), InferenceSpec(lam=AutoLam(share=0.5)))


def test_a_number_stays() -> None:
    spec = InferenceSpec(lam=3.0)
    assert resolve_lam(DeconvNet(SPECS["1 layer"]), torch.zeros(0, 1, 1, 1), spec) is spec


def test_images_are_sampled_over_the_entire_set() -> None:
    assert sample_rows(3) == [0, 1, 2]
    rows = sample_rows(10 * SAMPLE)
    assert rows == list(range(0, 10 * SAMPLE, 10))


def test_training_chooses_lam_once_and_stores_the_number(tmp_path) -> None:
    recipe = tiny.recipe()
    auto = InferenceSpec(lam=AutoLam(noise=0.1), steps=3)
    recipe = replace(recipe, inference=auto, learning=tuple(replace(spec, inference=auto) for spec in recipe.learning))
    images = tiny.images()
    run = tiny.train(recipe, images, tmp_path)
    stored = read_recipe(tmp_path / "recipe.toml")
    start = DeconvNet(recipe.model, seed=recipe.seed)
    assert stored.inference == resolve_lam(start, images, auto)
    assert stored.learning[0].inference == resolve_lam(start, images, auto, [Phase(layer=1)])
    again = tiny.train(recipe, images, tmp_path, resume=True)
    assert tiny.same_filters(again.model, run.model)
    with pytest.raises(SpecError, match="AutoLam with a share was given for a training"):
        tiny.train(replace(recipe, inference=InferenceSpec(lam=AutoLam(share=0.1))), images)
