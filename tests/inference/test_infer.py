from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import tiny_training as tiny
import whatwhere as ww
from examples import SPECS, random_images
from raising import raises
from whatwhere.engines import resolve, unsupported_reasons
from whatwhere.engines.devices import UnknownDevice, choose_device
from whatwhere.errors import EmptySet, InvalidImages, InvalidSetting, UnknownEngine, WrongShape
from whatwhere.inference import infer, resolve_lam
from whatwhere.inference.auto_lam import AutoLamRule, NoLam, sample_rows
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import AutoLam, InferenceSpec, ModelSpec, Phase
from whatwhere.spec.recipe import joint
from whatwhere.spec.toml import read_recipe

SPEC = SPECS["2 layers"]


def test_progress_counts_every_image() -> None:
    seen: list[int] = []
    infer(
        DeconvNet(SPEC),
        random_images(SPEC, 5).float(),
        InferenceSpec(steps=1),
        batch_size=2,
        progress=seen.append,
    )
    assert seen == [2, 2, 1]


def test_images_and_latents_of_another_type_are_brought_to_the_model_s() -> None:
    model, v, spec = DeconvNet(SPEC), random_images(SPEC, 3), InferenceSpec(steps=2)
    expected = infer(model, v.float(), spec, engine="reference")
    found = infer(model, v.double(), spec, engine="reference")
    assert torch.equal(found.features, expected.features)
    latents = expected.latents
    went_on = infer(model, v.double(), spec, latents=latents.to(torch.float64), engine="reference")
    assert torch.equal(
        went_on.features,
        infer(model, v.float(), spec, latents=latents, engine="reference").features,
    )


@pytest.mark.parametrize("name", ["reference", "auto"])
def test_latents_of_other_images_are_refused(name: str) -> None:
    model, v, spec = DeconvNet(SPEC), random_images(SPEC, 3).float(), InferenceSpec(steps=1)
    latents = infer(model, v, spec).latents
    first = "pooling variables of layer 1"
    with raises(WrongShape, name=first) as caught:
        infer(model, v, spec, latents=latents[:2], engine=name)
    assert caught.value.given[0] == 2
    with raises(WrongShape, name=first) as caught:
        infer(model, F.pad(v, (4, 4, 4, 4)), spec, latents=latents, engine=name)
    assert caught.value.given[0] == 3
    with raises(WrongShape, name="features of layer 2"):
        infer(model, v, spec, latents=replace(latents, p=latents.p[:, :-1]), engine=name)
    given = "latents with pooling variables of 2 layers"
    with raises(InvalidImages, given=given, expected="1, as the model has"):
        infer(DeconvNet(ModelSpec(layers=SPEC.layers[:1])), v, spec, latents=latents, engine=name)
    with raises(InvalidImages, given="latents with pooling variables of 0 layers"):
        infer(model, v, spec, latents=Latents(latents.p), engine=name)


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(EmptySet):
        infer(DeconvNet(SPEC), torch.zeros(0, 1, 8, 8))


def test_a_phase_above_the_model_is_refused() -> None:
    with raises(
        InvalidSetting, given={"phase.layer": 3}, expected="at most 2, the layers of the model"
    ):
        infer(DeconvNet(SPEC), random_images(SPEC).float(), plan=(Phase(layer=3),))


def test_an_unknown_engine_is_refused_by_name() -> None:
    with raises(UnknownEngine, given="warp"):
        infer(DeconvNet(SPEC), random_images(SPEC).float(), engine="warp")


def test_the_reference_always_serves_and_is_recorded() -> None:
    assert infer(
        DeconvNet(SPEC), random_images(SPEC).float(), InferenceSpec(steps=1), engine="reference"
    ).engine == ("reference")


def test_auto_takes_the_fastest_engine_that_supports_the_problem() -> None:
    model, v = DeconvNet(SPEC), random_images(SPEC).float()
    reasons = unsupported_reasons(Problem(model, v, joint(2)[0], InferenceSpec()))
    able = [name for name, reason in reasons.items() if reason is None]
    assert resolve("auto", Problem(model, v, joint(2)[0], InferenceSpec())).name == able[0]
    assert infer(model, v, InferenceSpec(steps=1)).engine == able[0]


def test_the_default_plan_is_joint_at_any_depth() -> None:
    assert joint(2) == (Phase(layer=2, update_pooling=(1, 2)),)
    assert joint(3) == (Phase(layer=3, update_pooling=(1, 2, 3)),)


# Devices ------------------------------------------------------------------------------------------


def test_a_device_is_chosen_or_raises(monkeypatch):
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:0")
    assert choose_device("auto", "cpu") == choose_device("auto", "greedy") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with raises(UnknownDevice, given="cuda:1"):
        choose_device("cuda:1")
    with raises(UnknownDevice, given="gpu"):
        choose_device("gpu")


# λ chosen from the images: the formulas evaluated literally, and codes just below and above the
# largest penalty ---


KINDS = ["1 layer", "2 layers", "2 layers, max", "2 layers, signed", "3 layers, colour"]


@pytest.mark.parametrize("name", KINDS)
def test_at_a_share_of_1_the_code_becomes_empty(name: str) -> None:
    model = DeconvNet(SPECS[name], seed=1).to(torch.float64)
    images = random_images(model.spec)
    share = 0.5
    largest = 1 / (
        resolve_lam(model, images, InferenceSpec(lam=AutoLam(share=share))).lam / (1 / share)
    )
    for sparsity, empty in ((1.001 * largest, True), (0.999 * largest, False)):
        features = infer(
            model, images, InferenceSpec(lam=1 / sparsity, steps=20), engine="reference"
        ).features
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
    with pytest.raises(NoLam):
        infer(model, torch.zeros(2, 1, 9, 8), InferenceSpec(lam=AutoLam(share=0.5)))


def test_a_number_stays() -> None:
    spec = InferenceSpec(lam=3.0)
    assert resolve_lam(DeconvNet(SPECS["1 layer"]), torch.zeros(0, 1, 1, 1), spec) is spec


def test_images_are_sampled_over_the_entire_set() -> None:
    assert sample_rows(3) == [0, 1, 2]
    rule = AutoLamRule(sample=7)
    assert sample_rows(70, rule) == list(range(0, 70, 10))


def test_training_chooses_lam_once_and_stores_the_number(tmp_path) -> None:
    recipe = tiny.recipe()
    auto = InferenceSpec(lam=AutoLam(relative=2.0), steps=3)
    recipe = replace(
        recipe,
        inference=auto,
        learning=tuple(replace(spec, inference=auto) for spec in recipe.learning),
    )
    images = tiny.images()
    run = tiny.train(recipe, images, tmp_path)
    stored = read_recipe(tmp_path / "recipe.toml")
    start = DeconvNet(recipe.model, seed=recipe.seed)
    assert stored.inference == resolve_lam(start, images, auto)
    assert stored.learning[0].inference == resolve_lam(start, images, auto, [Phase(layer=1)])
    again = tiny.train(recipe, images, tmp_path, resume=True)
    assert tiny.same_filters(again.model, run.model)
    with raises(InvalidSetting, given="AutoLam with `share` for training"):
        tiny.train(replace(recipe, inference=InferenceSpec(lam=AutoLam(share=0.1))), images)


def test_a_number_of_steps_is_enough() -> None:
    model, images = ww.load("mnist"), ww.data.load("digits")[:2]
    ours = ww.infer(model, images, steps=2)
    expected = ww.infer(model, images, ww.InferenceSpec(steps=2))
    assert torch.equal(ours.features, expected.features)
    spec = ww.InferenceSpec(lam=20)
    assert len(ww.infer(model, images, spec, steps=3).stats.step) == 3


@pytest.mark.parametrize(("arguments", "given"), [((10,), {"spec": 10}), ((None, 3), {"plan": 3})])
def test_settings_of_another_type_are_named(arguments: tuple, given: dict[str, object]) -> None:
    with raises(InvalidSetting, given=given):
        ww.infer(ww.load("mnist"), ww.data.load("digits")[:2], *arguments)
