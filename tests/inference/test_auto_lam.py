"""λ chosen from the images: the formulas evaluated literally, and codes just below and above the largest penalty."""

from dataclasses import replace

import pytest
import torch

import tiny_training as tiny
from examples import SPECS, random_images
from whatwhere.errors import ImageError, SpecError
from whatwhere.inference import infer, resolve_lam
from whatwhere.inference.auto_lam import SAMPLE, sample_rows
from whatwhere.model import DeconvNet
from whatwhere.spec import AutoLam, InferenceSpec, Phase
from whatwhere.spec.toml import read_recipe

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


def test_images_without_a_correlation_raise_an_error_that_says_what_to_give() -> None:
    model = DeconvNet(SPECS["1 layer"], seed=0).to(torch.float64)
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
    auto = InferenceSpec(lam=AutoLam(relative=2.0), steps=3)
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
