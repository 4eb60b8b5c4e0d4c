import math
import os
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whatwhere as ww
from raising import raises
from whatwhere import models
from whatwhere.errors import (
    InvalidSetting,
    NoSuchRecipe,
    SpecError,
    SpecErrorAt,
    UnknownSetting,
    UnusableRecipe,
)
from whatwhere.model import load
from whatwhere.spec import (
    AutoLam,
    DescriptorSpec,
    EveryBatch,
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
    StepSpec,
)
from whatwhere.spec.checks import type_hints
from whatwhere.spec.toml import GivenTwice, MissingSetting, build, override, read_recipe, to_toml


def read(tmp_path: Path, text: str) -> Recipe:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return read_recipe(path)


def test_an_empty_file_is_the_paper(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Recipe.paper()


def test_the_recipe_of_two_layers_has_the_first_layer_of_the_model_that_ships() -> None:
    two_layers = (
        Path(__file__).parents[2] / "benchmarks" / "restoration" / "photographs_two_layers.toml"
    )
    one, two = read_recipe("photographs"), read_recipe(two_layers)
    assert load(models.path("photographs")).spec == one.model
    assert two.model.layers[0] == one.model.layers[0]
    assert (two.model.depth, len(two.learning)) == (2, 2)
    assert two.learning[0] == one.learning[0]
    assert (two.model.input, two.inference, two.batch_size) == (
        one.model.input,
        one.inference,
        one.batch_size,
    )


def test_a_file_holds_differences(tmp_path: Path) -> None:
    recipe = read(
        tmp_path,
        """
        seed = 3
        [model]
        nonnegative = false
        [model.layers.2]
        maps = 64
        [learning.each]
        epochs = 7
        [learning.2]
        inference.lam = 1
        [inference]
        lam = 20.0
        [[plan]]
        layer = 1
        update_pooling = [1]
        """,
    )
    paper = Recipe.paper()
    assert recipe.seed == 3
    assert recipe.model.layers == (paper.model.layers[0], replace(paper.model.layers[1], maps=64))
    assert not recipe.model.nonnegative
    assert [learning.epochs for learning in recipe.learning] == [7, 7]
    assert [learning.inference.lam for learning in recipe.learning] == [2.0, 1.0]
    assert recipe.inference == replace(paper.inference, lam=20.0)
    assert recipe.plan == (Phase(layer=1, update_pooling=(1,)),)


CHOICES = {
    'inference.lam = "auto"': InferenceSpec(lam=AutoLam()),
    "inference.lam.relative = 2": InferenceSpec(lam=AutoLam(relative=2.0)),
    'inference.lam = { kind = "auto", share = 0.2 }': InferenceSpec(lam=AutoLam(share=0.2)),
    'inference.step = "fixed"': InferenceSpec(step=Fixed()),
    'inference.step = { kind = "fixed", momentum = true }': InferenceSpec(
        step=Fixed(momentum=True)
    ),
    "inference.step.momentum = true": InferenceSpec(step=LineSearch(momentum=True)),
    'inference.step.per = "batch"': InferenceSpec(step=LineSearch(per="batch")),
    'inference.step = { kind = "schedule", steps = [{ size = 0.1, threshold = 0.2 }] }': (
        InferenceSpec(step=Schedule(steps=(StepSpec(size=0.1, threshold=0.2),)))
    ),
    "inference.moments.gamma_max = 20": InferenceSpec(moments=MomentFit(gamma_max=20.0)),
}


@pytest.mark.parametrize("text", CHOICES)
def test_a_choice_is_a_table_with_its_kind(text: str, tmp_path: Path) -> None:
    recipe = read(tmp_path, text)
    assert recipe.inference == CHOICES[text]
    assert override(Recipe.paper(), tomllib.loads(to_toml(recipe))) == recipe


def test_a_choice_keeps_its_settings_until_its_kind_changes() -> None:
    searched = InferenceSpec(step=LineSearch(per="batch", momentum=True))
    for same in ({"momentum": True}, {"kind": "line_search"}, "line_search"):
        assert override(searched, {"step": same}) == searched
    assert override(searched, {"step": {"kind": "fixed"}}).step == Fixed()
    assert (
        override(override(searched, {"step": "fixed"}), {"step": {"kind": "line_search"}}).step
        == LineSearch()
    )
    assert override(InferenceSpec(lam=AutoLam(share=0.1)), {"lam": 3}).lam == 3.0
    learning = LearningSpec(inference=InferenceSpec(), update=EveryEpoch(reset_at=(3,)))
    assert override(learning, {"update": "batch"}).update == EveryBatch()
    assert override(learning, {"update": {"reset_at": []}}).update == EveryEpoch(reset_at=())


def test_a_third_layer(tmp_path: Path) -> None:
    recipe = read(
        tmp_path,
        "[model.layers.3]\nmaps = 8\n[learning.3]\nepochs = 4\n[learning.3.inference]\nlam = 0.1",
    )
    assert recipe.model.layers[2] == LayerSpec(maps=8)
    assert recipe.learning[2] == LearningSpec(inference=InferenceSpec(lam=0.1), epochs=4)


INVALID: dict[str, tuple[dict[str, Any] | str, str]] = {
    "[learning.1.inference]\nstep = 1": (
        {"learning.1.inference.step": 1},
        "LineSearch or Fixed or Schedule",
    ),
    "[inference]\nlam = 'big'": ({"inference.lam": "big"}, "'auto'"),
    "[inference]\nsteps = 1.5": ({"inference.steps": 1.5}, "an integer"),
    "[inference]\nstep.momentum = 1": ({"inference.step.momentum": 1}, "true or false"),
    "[inference]\nstep.per = 'x'": ({"inference.step.per": "x"}, "one of 'image'"),
    "[inference]\nstep = 'x'": ({"inference.step": "x"}, "'line_search' or 'fixed' or 'schedule'"),
    "[inference]\nstep.kind = 3": ({"inference.step.kind": 3}, "'line_search' or"),
    "[descriptor]\npatch = 9": ({"descriptor.patch": 9}, "a list"),
    "inference = 3": ({"inference": 3}, "a table"),
    "[model.layers.4]\nmaps = 3": ("model.layers.4", "a number from 1 to 3, or 'each'"),
    "[model.layers.first]\nmaps = 3": ("model.layers.first", "a number from 1 to 3, or 'each'"),
    "[inference]\npooling_step = inf": ({"inference.pooling_step": math.inf}, "a finite number"),
    f"[inference]\nlam = 1{'0' * 400}": ({"inference.lam": 10**400}, "a finite number"),
    f"seed = {2**64}": ({"seed": 2**64}, "an integer of at most"),
}


@pytest.mark.parametrize("text", INVALID, ids=lambda text: text[:40])
def test_an_invalid_value_raises_an_error_that_names_the_setting(text: str, tmp_path: Path) -> None:
    given, expected = INVALID[text]
    with raises(InvalidSetting, given=given) as caught:
        read(tmp_path, text)
    assert caught.value.expected.startswith(expected)


UNKNOWN = {
    "sede = 1": ("sede", ["seed"]),
    "[infrence]\nlam = 1": ("infrence", ["inference"]),
    "[inference]\nlamb = 1": ("inference.lamb", ["inference.lam"]),
    "[learning.1.inference]\nstop = 1": (
        "learning.1.inference.stop",
        ["learning.1.inference.step"],
    ),
    "[inference]\nstep = { kind = 'fixed', per = 'image' }": ("inference.step.per", []),
    "lam = 5": ("lam", ["inference.lam", "learning.each.inference.lam"]),
    "epoch = 5": ("epoch", ["learning.each.epochs"]),
}


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_setting_raises_an_error_with_the_nearest(text: str, tmp_path: Path) -> None:
    given, near = UNKNOWN[text]
    with raises(UnknownSetting, given=given, near=tuple(near)):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[inference]\nstep.kind = 'schedule'", "inference.step.steps"),
        ("[model.layers.3]\nfilter_size = 3", "model.layers.3.maps"),
        ("[learning.3]\nepochs = 4", "learning.3.inference"),
    ],
)
def test_a_missing_setting_is_named(text: str, name: str, tmp_path: Path) -> None:
    with raises(MissingSetting, name=name):
        read(tmp_path, text)


def test_an_error_of_a_table_has_its_place(tmp_path: Path) -> None:
    with raises(SpecErrorAt, where="inference") as caught:
        read(tmp_path, "[inference]\nlam = -1")
    assert caught.value.error.given == {"lam": -1.0}


@pytest.mark.parametrize(
    "text",
    ["seed = ", f"seed = 1{'0' * 5000}", f"seed = {'[' * 10_000}"],
    ids=lambda text: text[:9],
)
def test_text_that_is_no_toml_raises(text: str, tmp_path: Path) -> None:
    with raises(UnusableRecipe, kind="recipe"):
        read(tmp_path, text)


def test_the_learning_settings_follow_the_number_of_layers(tmp_path: Path) -> None:
    first, second = Recipe.paper().learning
    assert read(tmp_path, "model.layers = [{maps = 8}]").learning == (first,)
    assert read(tmp_path, "[model.layers.3]\nmaps = 8").learning == (first, second, second)
    one = read(tmp_path, "model.layers = [{maps = 8}]\n[learning.each]\nepochs = 3")
    assert one.learning == (replace(first, epochs=3),)
    with raises(InvalidSetting, given={"learning": 2, "layers": 1}):
        read(tmp_path, "model.layers = [{maps = 8}]\n[learning.2]\ninference.lam = 1.0")
    with raises(InvalidSetting, given="learning.3", expected="a number from 1 to 2, or 'each'"):
        read(tmp_path, "model.layers = [{maps = 8}]\n[learning.3]\ninference.lam = 1.0")


def make_fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder, "it is a folder"),
        (lambda folder: folder / ("x" * 300), "name too long"),
        (lambda folder: make_fifo(folder / "fifo"), "it is a pipe"),
        (lambda folder: Path("/dev/zero"), "a device"),
        (lambda folder: write(folder / "bytes", b"\xff\xfe"), "can't decode"),
        (lambda folder: write(folder / "large", b"#" * (2**20 + 1)), "more than 1,048,576 bytes"),
    ],
)
def test_what_cannot_be_a_recipe_is_named(
    make: Callable[[Path], Path], reason: str, tmp_path: Path
) -> None:
    with raises(UnusableRecipe, kind="recipe") as caught:
        read_recipe(make(tmp_path))
    assert reason in caught.value.reason


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raises(NoSuchRecipe, path="papers") as caught:
        read_recipe("papers")
    assert "signals" in caught.value.remedy
    assert caught.value.remedy.endswith("Did you mean 'paper'?")
    with raises(NoSuchRecipe, path=str(tmp_path / "nowhere.toml")):
        read_recipe(tmp_path / "nowhere.toml")


layers = st.builds(
    LayerSpec,
    maps=st.integers(1, 9).map(lambda n: 2 * n),
    filter_size=st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 9), st.integers(1, 9))),
    pooling=st.sampled_from(["gaussian", "max", "sum"]),
    pool_size=st.sampled_from([2, 3, 4, (2, 4), (3, 2)]),
    pool_stride=st.sampled_from([None, 1, 2, (1, 2), (2, 1)]),
    pool_maps=st.sampled_from([1, 2]),
)
inferences = st.builds(
    InferenceSpec,
    lam=st.floats(1e-3, 1e3),
    penalty=st.builds(Power, alpha=st.floats(0.5, 1)),
    steps=st.integers(0, 200),
    step=st.one_of(
        st.builds(LineSearch, per=st.sampled_from(["image", "batch"]), momentum=st.booleans()),
        st.builds(Fixed, momentum=st.booleans()),
    ),
    moments=st.builds(MomentFit, gamma_min=st.floats(0, 1), gamma_max=st.floats(1, 1e6)),
)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    depth = draw(st.integers(1, 3))
    learning = st.builds(
        LearningSpec,
        inference=inferences,
        epochs=st.integers(0, 60),
        update=st.builds(EveryEpoch, reset_at=st.lists(st.integers(1, 50), max_size=3).map(tuple)),
        update_lower_filters=st.booleans(),
    )
    return Recipe(
        model=ModelSpec(
            layers=tuple(draw(layers) for _ in range(depth)), channels=draw(st.integers(1, 3))
        ),
        learning=tuple(draw(learning) for _ in range(depth)),
        inference=draw(inferences),
        plan=draw(st.sampled_from([(), (Phase(layer=1, update_pooling=(1,)),)])),
        descriptor=DescriptorSpec(raw=draw(st.booleans())),
        seed=draw(st.integers(0, 9)),
    )


@given(recipes())
def test_a_recipe_comes_back_as_it_was(recipe: Recipe) -> None:
    assert build(Recipe, tomllib.loads(to_toml(recipe))) == recipe


anything = st.one_of(
    st.integers(),
    st.integers(-3, 5),
    st.floats(),
    st.floats(0, 1),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.sampled_from(
        ["gaussian", "image", "exact", "rms", 10**400, 10**5000, np.float32(0.7), np.int64(2), -0.0]
    ),
    st.lists(st.integers(-1, 4), max_size=3),
)


def settings_of(
    kind: type, **given: st.SearchStrategy[object]
) -> st.SearchStrategy[dict[str, object]]:
    """Some settings of a spec with any values."""
    return st.fixed_dictionaries(
        given, optional={name: anything for name in type_hints(kind) if name not in given}
    )


@given(
    settings_of(LayerSpec, maps=st.one_of(anything, st.just(4))),
    settings_of(InferenceSpec),
    settings_of(LearningSpec, inference=st.just(InferenceSpec())),
    settings_of(DescriptorSpec),
    settings_of(
        Recipe, model=st.none(), learning=st.none(), inference=st.none(), descriptor=st.none()
    ),
)
def test_every_recipe_that_can_be_made_can_be_written_and_read(
    layer, inference, learning, descriptor, recipe
) -> None:
    def make() -> Recipe:
        model = ModelSpec(layers=[LayerSpec(**layer)])  # type: ignore[arg-type]
        parts = {
            "model": model,
            "learning": [LearningSpec(**learning)],
            "inference": InferenceSpec(**inference),
        }
        return Recipe(**recipe | parts | {"descriptor": DescriptorSpec(**descriptor)})

    try:
        made = make()
    except SpecError:
        return
    assert build(Recipe, tomllib.loads(to_toml(made))) == made
    assert override(Recipe.paper(), tomllib.loads(to_toml(made))) == made


@pytest.mark.parametrize("kind", [InferenceSpec, LearningSpec, DescriptorSpec])
@given(data=st.data())
def test_every_single_setting_that_is_accepted_can_be_written_and_read(kind, data) -> None:
    """One setting at a time, so that most values are accepted."""
    required = {"inference": InferenceSpec()} if kind is LearningSpec else {}
    name = data.draw(st.sampled_from([name for name in type_hints(kind) if name not in required]))
    try:
        spec = kind(**required, **{name: data.draw(anything)})
    except SpecError:
        return
    part = {InferenceSpec: "inference", LearningSpec: "learning", DescriptorSpec: "descriptor"}[
        kind
    ]
    try:
        recipe = replace(Recipe.paper(), **{part: (spec, spec) if kind is LearningSpec else spec})
    except SpecError:  # a descriptor of a layer that the model does not have
        return
    assert build(Recipe, tomllib.loads(to_toml(recipe))) == recipe


def test_a_run_folders_recipe_comes_back_as_it_was(tmp_path: Path) -> None:
    recipe = replace(Recipe.paper(), seed=4, plan=(Phase(layer=2, update_pooling=(2,)),))
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    assert read_recipe(tmp_path / "recipe.toml") == recipe


def test_override_takes_the_dotted_names_of_the_command_line() -> None:
    recipe = ww.Recipe.paper()
    dotted = ww.override(recipe, {"inference.steps": 7, "inference.lam": 3, "seed": 4})
    assert dotted == ww.override(recipe, {"inference": {"steps": 7, "lam": 3}, "seed": 4})
    tables = {"inference": {"steps": 7}}
    assert ww.override(recipe, {**tables, "inference.lam": 3, "seed": 4}) == dotted
    assert tables == {"inference": {"steps": 7}}, "the caller's tables stay as they are"


@pytest.mark.parametrize(
    "changes", [{"seed": 1, "seed.x": 2}, {"inference": {"steps": 1}, "inference.steps": 2}]
)
def test_a_name_given_twice_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(GivenTwice):
        ww.override(ww.Recipe.paper(), changes)
