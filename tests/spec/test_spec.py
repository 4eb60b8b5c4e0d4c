import inspect
import math
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Annotated, Any

import numpy as np
import pytest

from raising import raises
from whatwhere.errors import InvalidSetting, UnknownSetting
from whatwhere.spec import (
    AutoLam,
    DescriptorSpec,
    EveryEpoch,
    Fixed,
    InferenceSpec,
    LayerSpec,
    LearningSpec,
    LineSearch,
    ModelSpec,
    MomentFit,
    Phase,
    Power,
    Recipe,
    Schedule,
    Sum,
)
from whatwhere.spec.checks import Checked, Count, Within
from whatwhere.spec.toml import described_paths, value_of


def test_the_papers_settings() -> None:
    recipe = Recipe.paper()
    assert [layer.maps for layer in recipe.model.layers] == [16, 48]
    assert [layer.filter_size for layer in recipe.model.layers] == [5, 5]
    assert [(layer.pool_size, layer.strides) for layer in recipe.model.layers] == [(2, (2, 2))] * 2
    assert [layer.fan_in for layer in recipe.model.layers] == [None, 8]
    assert recipe.model.nonnegative
    assert [learning.inference.lam for learning in recipe.learning] == [2.0, 0.5]
    for learning in recipe.learning:
        assert (learning.inference.penalty.alpha, learning.inference.steps) == (0.5, 100)
        assert learning.inference.step == LineSearch(per="batch")
        assert (learning.epochs, learning.update, learning.cg_steps) == (
            50,
            EveryEpoch(reset_at=(25,)),
            2,
        )
        assert (learning.update_lower_filters, learning.update_lower_pooling) == (False, True)
    assert (recipe.inference.lam, recipe.inference.penalty.alpha, recipe.inference.steps) == (
        5.0,
        1.0,
        50,
    )
    assert recipe.descriptor.patch == (9, 6)


@dataclass(frozen=True, kw_only=True)
class Oven(Checked):
    shelves: Count = 2
    heat: Annotated[float, Within(0, 1, above=True, below=True)] | None = None
    doses: tuple[Annotated[float, Within(0, 5)], ...] = ()


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        ({"shelves": 0}, 0, "an integer of at least 1"),
        ({"shelves": None}, None, "an integer, not NoneType"),
        ({"heat": 0}, 0.0, "a number above 0 and below 1"),
        ({"heat": 1.0}, 1.0, "a number above 0 and below 1"),
        ({"doses": [1, 6]}, 6.0, "a number of at least 0 and at most 5"),
    ],
)
def test_an_annotation_is_checked_with_its_range(
    given: dict[str, Any], value: object, expected: str
) -> None:
    assert Oven(heat=0.5, doses=[0, 5]).doses == (0.0, 5.0)
    with raises(InvalidSetting, given=dict.fromkeys(given, value), expected=expected):
        Oven(**given)


def test_a_size_is_a_number_or_a_pair() -> None:
    square, wide = (
        LayerSpec(maps=2, filter_size=(5, 5), pool_size=[2, 2]),
        LayerSpec(maps=2, filter_size=[1, 7]),
    )
    assert square == LayerSpec(maps=2)
    assert (square.filter_size, square.strides) == (5, (2, 2))
    assert (wide.filter_size, wide.filter_shape, wide.square) == ((1, 7), (1, 7), False)
    assert LayerSpec(maps=2, pool_size=(1, 3)).strides == (1, 3)


def test_specs_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Recipe.paper().seed = 3  # type: ignore[misc]


BAD: list[tuple[dict[str, Any], Callable[[], object]]] = [
    ({"maps": 0}, lambda: LayerSpec(maps=0)),
    ({"maps": True}, lambda: LayerSpec(maps=True)),
    ({"maps": 2.5}, lambda: LayerSpec(maps=2.5)),
    ({"pool_stride": 3, "pool_size": 2}, lambda: LayerSpec(maps=2, pool_stride=3)),
    ({"pool_stride": (1, 3), "pool_size": 2}, lambda: LayerSpec(maps=2, pool_stride=(1, 3))),
    ({"filter_size": (1, 2, 3)}, lambda: LayerSpec(maps=2, filter_size=(1, 2, 3))),
    ({"filter_size": "5"}, lambda: LayerSpec(maps=2, filter_size="5")),
    ({"pool_size": 0}, lambda: LayerSpec(maps=2, pool_size=(2, 0))),
    ({"pool_size": True}, lambda: LayerSpec(maps=2, pool_size=True)),
    ({"maps": 5, "pool_maps": 2}, lambda: LayerSpec(maps=5, pool_maps=2)),
    ({"pooling": "mean"}, lambda: LayerSpec(maps=2, pooling="mean")),
    ({"layers": ()}, lambda: ModelSpec(layers=())),
    ({"layers.1.fan_in": 2}, lambda: ModelSpec(layers=(LayerSpec(maps=3, fan_in=2),))),
    ({"normalise": "x"}, lambda: ModelSpec(layers=(LayerSpec(maps=3),), normalise="x")),
    ({"lam": 0.0}, lambda: InferenceSpec(lam=0.0)),
    ({"lam": 10**400}, lambda: InferenceSpec(lam=10**400)),
    ({"pooling_step": float("inf")}, lambda: InferenceSpec(pooling_step=float("inf"))),
    ({"momentum": 1}, lambda: LineSearch(momentum=1)),
    ({"power": True}, lambda: MomentFit(power=True)),
    ({"maps": 10**5000}, lambda: LayerSpec(maps=10**5000)),
    ({"seed": 2**64}, lambda: Recipe(seed=2**64)),
    ({"layers": "a"}, lambda: ModelSpec(layers=("a",))),
    ({"alpha": 0.4}, lambda: Power(alpha=0.4)),
    ({"steps": -1}, lambda: InferenceSpec(steps=-1)),
    ({"per": "big"}, lambda: LineSearch(per="big")),
    ({"step": "fix"}, lambda: InferenceSpec(step="fix")),
    ({"pooling_step": -1.0}, lambda: InferenceSpec(pooling_step=-1.0)),
    ({"gamma_min": 2.0, "gamma_max": 1.0}, lambda: MomentFit(gamma_min=2.0, gamma_max=1.0)),
    ({"power": 3}, lambda: MomentFit(power=3)),
    ({"lam": "automatic"}, lambda: InferenceSpec(lam="automatic")),
    (
        {"lam": AutoLam(share=0.1), "penalty": Power(alpha=0.5)},
        lambda: InferenceSpec(lam=AutoLam(share=0.1), penalty=Power(alpha=0.5)),
    ),
    ({"relative": -1.0}, lambda: AutoLam(relative=-1)),
    ({"share": 1.0}, lambda: AutoLam(share=1)),
    ({"tolerance": -1.0}, lambda: InferenceSpec(tolerance=-1)),
    ({"update_pooling": (3,), "layer": 2}, lambda: Phase(layer=2, update_pooling=(3,))),
    ({"epochs": -1}, lambda: LearningSpec(inference=InferenceSpec(), epochs=-1)),
    ({"reset_at": 0}, lambda: EveryEpoch(reset_at=(0,))),
    ({"learning": 2, "layers": 1}, lambda: Recipe(model=ModelSpec(layers=(LayerSpec(maps=2),)))),
    ({"plan.layer": 3}, lambda: Recipe(plan=(Phase(layer=3),))),
    ({"descriptor.layers": 3}, lambda: Recipe(descriptor=DescriptorSpec(layers=(3,)))),
    ({"batch_size": 0}, lambda: Recipe(batch_size=0)),
]


@pytest.mark.parametrize(("given", "make"), BAD, ids=[" ".join(given) for given, _ in BAD])
def test_an_invalid_setting_raises(given: dict[str, Any], make: Callable[[], object]) -> None:
    with raises(InvalidSetting, given=given):
        make()


def test_a_number_that_is_none_raises() -> None:
    with raises(InvalidSetting) as caught:
        InferenceSpec(lam=float("nan"))
    assert math.isnan(caught.value.given["lam"])


def test_lists_and_numpy_numbers_become_plain_values() -> None:
    spec = ModelSpec(layers=[LayerSpec(maps=np.int64(3))])
    assert spec == ModelSpec(layers=(LayerSpec(maps=3),))
    assert type(spec.layers[0].maps) is int
    assert type(InferenceSpec(lam=np.float32(2)).lam) is float
    assert type(InferenceSpec(lam=2).lam) is float


def test_the_papers_settings_for_another_model() -> None:
    first, second = Recipe.paper().learning
    three = ModelSpec(layers=(LayerSpec(maps=2),) * 3)
    assert Recipe.paper(three).learning == (first, second, second)
    assert Recipe.paper(ModelSpec(layers=(LayerSpec(maps=2),))).learning == (first,)
    assert Recipe.paper(ModelSpec.paper()) == Recipe.paper()


def test_the_repr_of_a_recipe_is_short() -> None:
    assert (
        repr(Recipe.paper())
        == "Recipe(layers of 16 and 48 maps, 50 and 50 epochs, batch_size=1000, seed=0)"
    )


def test_settings_for_coding_converge_and_can_be_changed() -> None:
    spec = InferenceSpec.coding()
    assert spec.momentum
    assert spec.tolerance > 0
    assert spec.steps > InferenceSpec().steps
    assert InferenceSpec.coding(lam=2.0, steps=9) == replace(spec, lam=2.0, steps=9)


def test_a_choice_can_be_given_by_its_name() -> None:
    assert LayerSpec(maps=2, pooling="sum").pooling == Sum()  # type: ignore[arg-type]
    assert InferenceSpec(step="fixed").step == Fixed()  # type: ignore[arg-type]
    with raises(InvalidSetting, given={"pooling": 3}, expected="Gaussian or Max or Sum"):
        LayerSpec(maps=2, pooling=3)  # type: ignore[arg-type]


def test_signatures_show_types_without_their_ranges() -> None:
    for kind in (LearningSpec, DescriptorSpec, LayerSpec, InferenceSpec, Schedule):
        shown = str(inspect.signature(kind))
        assert not re.search("Annotated|Within|NotEmpty|0x", shown), shown
    assert "epochs: int = 50" in str(inspect.signature(LearningSpec))
    assert "patch: tuple[int, ...] = (9, 6)" in str(inspect.signature(DescriptorSpec))
    assert "pool_stride: int | tuple[int, int] | None = None" in str(inspect.signature(LayerSpec))


def test_errors_say_what_to_write() -> None:
    with raises(InvalidSetting, given={"reset_at": 4}, expected="a list, such as [4]"):
        EveryEpoch(reset_at=4)  # type: ignore[arg-type]
    with raises(InvalidSetting, expected="'power', whose settings are: alpha"):
        InferenceSpec(penalty="l1")  # type: ignore[arg-type]


def test_the_values_of_settings_in_words() -> None:
    settings = described_paths(Recipe)
    assert settings["learning.each.epochs"].values == "integer ≥ 0"
    assert settings["inference.penalty.alpha"].values == "number ≥ 0.5 and ≤ 1"
    assert settings["inference.step"].values == "line_search|fixed|schedule"
    assert settings["inference.step.per"].values == "image|batch"
    assert settings["inference.lam"].values == "number > 0 or auto"
    assert settings["model.layers.each.pool_size"].values == "integer ≥ 1 or pair (height, width)"
    assert settings["descriptor.patch"].values == "list of integer ≥ 1"
    assert value_of(Recipe.paper(), "learning.each.epochs") == 50
    assert value_of(Recipe.paper(), "plan.each.layer") is None
    assert value_of(Recipe.paper(), "inference.lam.share") is None


@pytest.mark.parametrize("spec", [InferenceSpec, LineSearch, Recipe, Oven])
def test_a_misspelt_setting_raises_an_error_that_names_the_nearest(spec: type) -> None:
    for name in inspect.signature(spec).parameters:
        misspelt = f"{name[:-1]}zx"
        with pytest.raises(UnknownSetting) as caught:
            spec(**{misspelt: 3})
        error = caught.value
        assert (error.given, error.owner) == (misspelt, spec.__name__)
        assert name in error.known
        assert len(name) < 5 or error.near[0].startswith(name[:4])
    with pytest.raises(UnknownSetting):
        replace(Oven(), shelfs=3)  # type: ignore[call-arg]
