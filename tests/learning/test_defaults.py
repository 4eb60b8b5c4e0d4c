"""Settings chosen from the images: the input stage by the ground, λ by the strength, the amount by
the size."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import tiny_training as tiny
import whatwhere as ww
from raising import raises
from whatwhere.errors import InvalidSetting
from whatwhere.inference.auto_lam import resolve_lam
from whatwhere.learning import defaults, trainer
from whatwhere.learning.defaults import DefaultRules, RecordingOptions, choose_defaults
from whatwhere.learning.trainer import ChosenSettings
from whatwhere.model import DeconvNet
from whatwhere.spec import AutoLam, InferenceSpec, InputSpec
from whatwhere.spec.penalty import Power
from whatwhere.spec.toml import override, read_recipe


def digits(count: int = 30) -> torch.Tensor:
    return ww.data.load("digits")[:count]


def photographs(channels: int = 3) -> torch.Tensor:
    coarse = torch.rand(20, channels, 8, 8, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.interpolate(coarse, size=(24, 32), mode="bilinear")


@pytest.mark.parametrize(
    ("images", "kind", "white"),
    [
        (digits(), "none", 1.0),
        (255 * digits(), "none", 255.0),
        (1 - digits(), "onoff", 1.0),
        (digits() - 0.5, "onoff", 1.0),
        (photographs(), "onoff", 1.0),
        # a dark ground that is not black, as under a microscope
        (
            (0.06 + digits()).clamp(max=1),
            "onoff",
            1.0,
        ),
    ],
)
def test_the_input_stage_suits_the_ground(images: torch.Tensor, kind: str, white: float) -> None:
    chosen = choose_defaults(images)
    recipe, count, line = chosen.recipe, chosen.image_count, chosen.line
    assert (recipe.model.input.kind, recipe.model.input.white, recipe.model.channels) == (
        kind,
        white,
        images.shape[1],
    )
    assert count is None
    assert ("onoff" in line) == (kind == "onoff")
    assert "'paper'" in line


def test_more_images_than_can_be_learned_in_minutes_are_a_stream_of_some_of_them() -> None:
    chosen = choose_defaults(torch.zeros(6000, 1, 28, 28))
    count, line = chosen.image_count, chosen.line
    assert count == 4_000_000 // 28**2
    assert "5,102 of 6,000 images" in line
    assert choose_defaults(torch.zeros(500, 1, 28, 28)).recipe.learning[1].epochs == 10
    few = choose_defaults(torch.zeros(2, 1, 28, 28), rules=DefaultRules(most_epochs=3))
    assert few.recipe.learning[0].epochs == 3


@pytest.mark.parametrize("alpha", [0.5, 0.8, 1.0])
def test_weaker_images_have_the_same_code_but_for_its_scale(alpha: float) -> None:
    model, v = DeconvNet(tiny.recipe().model).to(torch.float64), digits(3).double()
    spec = InferenceSpec(
        lam=AutoLam(relative=2.0), penalty=Power(alpha=alpha), steps=5, pooling_step=0.0
    )
    strong, weak = (ww.infer(model, s * v, resolve_lam(model, s * v, spec)) for s in (1.0, 0.1))
    assert strong.features.count_nonzero() > 10
    torch.testing.assert_close(0.1 * strong.features, weak.features)


def test_digits_get_the_lam_of_the_demo() -> None:
    v = digits(2000)
    chosen = resolve_lam(
        DeconvNet(ww.ModelSpec.paper()),
        v,
        InferenceSpec(lam=AutoLam(relative=2.0), penalty=Power(alpha=0.5)),
    )
    assert chosen.lam == pytest.approx(2.0, rel=0.1)


def test_the_line_has_the_epochs_in_use() -> None:
    chosen = choose_defaults(digits())
    assert chosen.line_for(chosen.recipe) == chosen.line
    learning = tuple(replace(layer, epochs=7) for layer in chosen.recipe.learning)
    line = chosen.line_for(replace(chosen.recipe, learning=learning))
    assert "as you set, each layer is trained for 7 epochs. To change" in line
    assert "by default" not in line
    learning = (replace(learning[0], epochs=3), learning[1])
    line = chosen.line_for(replace(chosen.recipe, learning=learning))
    assert "the layers are trained for 3 and 7 epochs" in line


def test_training_without_a_recipe_is_training_with_the_chosen_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = partial(choose_defaults, rules=DefaultRules(values=8 * 28**2))
    monkeypatch.setattr(trainer, "choose_defaults", few)
    small = {
        "model": {"layers": [{"maps": 2, "filter_size": 3}]},
        "learning": {"each": {"inference": {"steps": 2}}},
    }
    monkeypatch.setattr(defaults, "read_recipe", lambda name: override(read_recipe(name), small))
    v = digits(20)
    with pytest.warns(ChosenSettings) as said:
        run = ww.train(v, options=tiny.OPTIONS)
    (chosen,) = [one.message.chosen for one in said]
    assert chosen.image_count == 8
    recipe, count, *_ = few(v)
    expected = ww.train(v, recipe, image_count=count, options=tiny.OPTIONS)
    assert tiny.same_filters(run.model, expected.model)
    assert isinstance(run.recipe.inference.lam, float)
    in_order = replace(
        recipe,
        learning=tuple(override(one, {"update": {"shuffle": False}}) for one in recipe.learning),
    )
    assert not tiny.same_filters(
        run.model, ww.train(v, in_order, image_count=count, options=tiny.OPTIONS).model
    )


def test_a_recipe_in_the_place_of_the_images_is_named() -> None:
    with raises(InvalidSetting, given="a recipe of type Tensor"):
        ww.train(ww.Recipe.paper(), digits(2))


def test_the_paper_is_a_recipe() -> None:
    assert read_recipe("paper") == ww.Recipe.paper()


def test_a_stream_has_masks() -> None:
    v, known = tiny.images(6), torch.ones(6, 1, 4, 5)
    known[:, :, 1:3, 2] = 0
    recipe = tiny.stream_recipe()
    by_mask, spoiled, by_nan, without = (
        tiny.train_model(images, recipe, mask=mask, options=tiny.OPTIONS).model
        for images, mask in [
            (v, known),
            (torch.where(known > 0, v, 9.0), known),
            (torch.where(known > 0, v, float("nan")), None),
            (v, None),
        ]
    )
    assert tiny.same_filters(by_mask, spoiled)
    assert tiny.same_filters(by_mask, by_nan)
    assert not tiny.same_filters(by_mask, without)


def test_a_data_loader_with_a_length_needs_no_image_count() -> None:
    v = tiny.images(10)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(v), batch_size=4)
    expected = tiny.train(tiny.stream_recipe(), v, image_count=10)
    assert tiny.same_filters(tiny.train(tiny.stream_recipe(), loader).model, expected.model)


def test_recordings_have_the_recipe_for_signals() -> None:
    values = np.random.default_rng(0).normal(size=(3, 2, 400))
    values[:, :, 40::60] += 40  # events
    recordings = ww.data.load(values, signals=True)
    recipe = choose_defaults(recordings).recipe
    assert recipe.model.for_signals
    assert recipe.model.channels == 2


def test_the_line_names_the_input_stage_that_a_person_set() -> None:
    chosen = choose_defaults(torch.rand(20, 1, 16, 16))
    assert "input stage 'onoff'" in chosen.line
    none = replace(chosen.recipe.model, input=InputSpec(kind="none"))
    line = chosen.line_for(replace(chosen.recipe, model=none))
    assert line.startswith("Input stage 'none', as you set; ")
    assert "onoff" not in line


def test_settings_of_recordings_are_none_of_pictures() -> None:
    """They would have no influence."""
    with raises(InvalidSetting, expected="a recording, or none of these settings"):
        choose_defaults(torch.rand(2, 1, 8, 8), RecordingOptions(rise="1s"))
