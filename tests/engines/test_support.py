"""No engine ignores a setting: changing it changes the result, or the engine raises an error that
names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import pytest
import torch

from raising import raises
from whatwhere.engines import ENGINES, get_engine
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.engines.support import ANY, Kinds, Only, Support, settings_of
from whatwhere.errors import EngineError
from whatwhere.inference import infer
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import (
    Fixed,
    Gaussian,
    InferenceSpec,
    InputSpec,
    LayerSpec,
    Max,
    ModelSpec,
    Phase,
    Power,
)
from whatwhere.spec.toml import override, settable, setting_paths

MODEL = ModelSpec(
    layers=(LayerSpec(maps=4, filter_size=3), LayerSpec(maps=4, filter_size=3, pool_size=3))
)
SIGNALS = ModelSpec(
    layers=(LayerSpec(maps=4, filter_size=(1, 5), pool_size=1),),
    signed_filters=True,
    normalise="filter",
)
INFERENCE = InferenceSpec(lam=2.0, steps=3, pooling_step=0.1)
CODING = InferenceSpec.coding(lam=2.0, steps=30)

STEP = {"size": 0.002, "threshold": 0.001, "extrapolation": 0.2, "pooling_step": [0.2]}
SCHEDULE: dict[str, Any] = {
    "kind": "schedule",
    "contrast": 0.5,
    "mu_scale": [0.8],
    "gamma_scale": [0.8],
    "steps": [STEP, STEP],
}
DETAILS = {"input": {"kind": "onoff", "sigma": 1.0, "contrast": 0.5, "contrast_sigma": 1.0}}
BASELINE = {
    "layers": [{"maps": 4, "filter_size": [1, 5], "pool_size": 1}],
    "signed_filters": True,
    "input": {"kind": "baseline", "span": 3},
}

# What a setting needs beside it, or no automatic change would tell: the settings before the change.
BEFORE: dict[str, dict[str, Any]] = {
    "inference.lam.relative": {"lam": {"kind": "auto"}},
    "inference.lam.share": {"lam": {"kind": "auto", "share": 0.2}},
    "inference.lam.deviations": {"lam": {"kind": "auto", "deviations": 2.0}},
    "inference.steps": {"steps": 1},
    "inference.tolerance": {"steps": 120, "tolerance": 1e-12},
    "inference.gap": {"steps": 120, "gap": 1e-12},
    "inference.step.steps.each": {"step": SCHEDULE},
    "inference.step.contrast": {"step": SCHEDULE},
    "inference.step.mu_scale": {"step": SCHEDULE},
    "inference.step.gamma_scale": {"step": SCHEDULE},
    "model.input": DETAILS,
    "model.input.span": BASELINE,
    "model.input.hum": BASELINE,
}
# Settings that no rule of `changed` changes well.
AFTER: dict[str, Any] = {
    "inference.lam": 3.0,
    "inference.tolerance": 0.9,
    "inference.gap": 0.9,
    "inference.step": "fixed",
    "inference.moments.gamma_min": 3.0,
    "inference.moments.gamma_max": 0.5,
    "inference.moments.power": 1,
    "inference.penalty": None,  # there is one kind
    "model.layers.each.filter_size": [1, 7],
    "model.layers.each.pooling": "max",
    "model.layers.each.pool_size": [1, 2],
    "model.layers.each.pool_stride": 1,
    "model.layers.each.pool_maps": 2,
    "model.layers.each.fan_in": 1,
    "model.input.kind": "none",
    "model.input.hum": 0.1,
}
# Why a setting cannot matter to an engine, though it is declared.
DESCENT = "coordinate descent takes no steps along a gradient"
NO_POOLING = "regions of one element have nothing to pool"
CANNOT_MATTER = {
    ("greedy", "inference.step"): DESCENT,
    ("greedy", "inference.step.per"): DESCENT,
    ("greedy", "inference.step.momentum"): DESCENT,
    ("greedy", "inference.pooling_step"): NO_POOLING,
    ("greedy", "inference.moments.gamma_min"): NO_POOLING,
    ("greedy", "inference.moments.gamma_max"): NO_POOLING,
    ("greedy", "inference.moments.power"): NO_POOLING,
    ("greedy", "model.layers.each.pooling"): NO_POOLING,
    ("greedy", "model.layers.each.pool_stride"): "it is 1 without pooling already",
    ("greedy", "model.normalise"): "a filter for one channel is one plane",
    ("greedy", "model.layers.each.fan_in"): "one channel has one map to connect",
}
PATHS = dict.fromkeys(
    [f"inference.{path}" for path in setting_paths(InferenceSpec)]
    + [f"model.{path}" for path in setting_paths(ModelSpec)]
)
NAMES = [
    pytest.param(
        name,
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ]
        if name == "triton"
        else [],
    )
    for name in ENGINES
]


def changes_of(path: str, value: Any) -> dict[str, Any]:
    """The table of differences that gives a setting this value."""
    for key in reversed(path.split(".")[1:]):
        value = {key: value}
    return dict(value)


def value_at(spec: Any, path: str) -> tuple[Any, Any]:
    """A setting's value and its type; of layers and steps, that of the first."""
    *parents, name = path.split(".")[1:]
    for parent in parents:
        spec = spec[0] if parent == "each" else getattr(spec, parent)
    return getattr(spec, name), settable(type(spec))[name]


def changed(value: Any, hint: Any) -> Any:
    """Another value of the same kind."""
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return [changed(item, None) for item in value]
    if isinstance(value, int):
        return value + 1
    assert isinstance(value, float), f"say in AFTER what to change {value!r} to"
    return 0.75 * value if value else 0.5


def solve(engine: str, model_spec: ModelSpec, spec: InferenceSpec) -> list[torch.Tensor]:
    """All that inference finds in some images."""
    model = DeconvNet(model_spec, seed=0)
    height = 1 if model_spec.for_signals else 12
    shape = 12, model_spec.channels, height, 13
    bytes_ = torch.randint(256, shape, generator=torch.Generator().manual_seed(0))
    model = model.to("cuda") if engine == "triton" else model
    # integers: the value of white is a setting, too
    solution = infer(model, bytes_.to(torch.uint8), spec, engine=engine)
    return [*solution.latents.tensors(), solution.stats.cost]


def differ(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) != len(two) or any(
        a.shape != b.shape or not torch.equal(a, b) for a, b in zip(one, two, strict=True)
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize("path", PATHS)
def test_a_setting_changes_the_result_or_raises_an_error_that_names_it(
    path: str, engine: str
) -> None:
    if engine in ("cpu", "greedy"):
        pytest.importorskip("numba")
    specs = {"model": MODEL, "inference": INFERENCE}
    if engine == "greedy":
        specs = {"model": SIGNALS, "inference": CODING}
    part = path.partition(".")[0]
    for start, before in BEFORE.items():
        if f"{path}.".startswith(f"{start}."):
            specs[part] = override(specs[part], before)
    after = AFTER[path] if path in AFTER else changed(*value_at(specs[part], path))
    if after is None:
        return
    new = dict(specs)
    table = changes_of(path, after)
    if path.startswith("inference.step.steps.each."):  # a list of steps is given as it stands
        one_step = {**STEP, path.split(".")[-1]: after}
        table = {"step": {**SCHEDULE, "steps": [one_step, one_step]}}
    new[part] = override(specs[part], table)
    assert new != specs
    names = [".".join(path.split(".")[:n]) for n in range(2, path.count(".") + 2)]
    reason = ""
    try:
        one = solve(engine, specs["model"], specs["inference"])
        two = solve(engine, new["model"], new["inference"])
    except EngineError as error:
        reason = str(error).replace("layers.1.", "layers.each.").replace("steps.1.", "steps.each.")
    if reason:
        assert any(f"{name} = " in reason for name in names), f"{reason} does not name {path}"
    elif (engine, path) in CANNOT_MATTER:
        assert not differ(one[:1], two[:1]), "it matters: remove it from CANNOT_MATTER"
    else:
        assert differ(one, two), f"{engine} ignores {path}"


def test_what_cannot_matter_is_a_setting_of_an_engine() -> None:
    assert {name for name, _ in CANNOT_MATTER} <= set(ENGINES)
    assert {path for _, path in CANNOT_MATTER} <= set(PATHS)
    assert set(AFTER) <= set(PATHS)


# The declaration itself ---------------------------------------------------------------------------


def reason(support: Support, model: ModelSpec = MODEL, **inference: Any) -> str | None:
    """Why a declaration does not support a model and settings of inference."""
    images = torch.zeros(1, model.channels, 8, 8)
    spec = InferenceSpec(**inference)
    problem = Problem(DeconvNet(model), images, Phase(layer=model.depth), spec)
    return support.unsupported_reason(problem)


LAYERS = {f"layers.each.{name}": ANY for name in ("maps", "filter_size", "pool_size")}


def test_a_setting_that_is_not_declared_must_have_its_default() -> None:
    declared = Support(inference={}, model=LAYERS)
    assert reason(declared) is None
    assert reason(declared, steps=7) == "inference.steps = 7 (it supports 50)"
    found = reason(declared, penalty=Power(alpha=0.5))
    assert found == "inference.penalty = Power(alpha=0.5) (it supports Power(alpha=1.0))"
    assert "inference.step = Fixed" in str(reason(declared, step=Fixed()))
    colour = replace(MODEL, channels=3)
    assert reason(declared, colour) == "model.channels = 3 (it supports 1)"
    smooth = replace(MODEL, input=InputSpec(contrast=0.5))
    assert reason(declared, smooth) == "model.input.contrast = 0.5 (it supports 0.0)"


def test_a_setting_without_a_default_must_be_declared() -> None:
    assert reason(Support({}, {})) == "model.layers.1.maps = 4"


def test_kinds_and_values_that_are_not_declared_are_named() -> None:
    declared = Support({}, LAYERS | {"layers.each.pooling": Kinds(Gaussian)})
    maximum = replace(MODEL, layers=(MODEL.layers[0], replace(MODEL.layers[1], pooling=Max())))
    assert reason(declared, maximum) == "model.layers.2.pooling = Max() (it supports Gaussian)"
    declared = Support({"steps": Only(50, 60)}, LAYERS)
    assert reason(declared, steps=60) is None
    assert reason(declared, steps=7) == "inference.steps = 7 (it supports 50 or 60)"
    declared = Support({"penalty": Kinds(Power)}, LAYERS)
    found = reason(declared, penalty=Power(alpha=0.5))
    assert found == "inference.penalty.alpha = 0.5 (it supports 1.0)", "a kind is not its settings"


def test_layers_above_the_phase_do_not_count() -> None:
    declared = Support({}, LAYERS)
    wide = replace(MODEL, layers=(MODEL.layers[0], replace(MODEL.layers[1], pool_maps=2)))
    problem = Problem(DeconvNet(wide), torch.zeros(1, 1, 8, 8), Phase(layer=1))
    assert declared.unsupported_reason(problem) is None
    problem = Problem(DeconvNet(wide), torch.zeros(1, 1, 8, 8), Phase(layer=2))
    assert declared.unsupported_reason(problem) == "model.layers.2.pool_maps = 2 (it supports 1)"


def test_the_settings_of_a_spec_are_those_of_a_recipe() -> None:
    names = {setting.path for setting in settings_of(INFERENCE)}
    assert names == {path.partition(".")[0] for path in setting_paths(InferenceSpec)}


def test_an_engine_that_is_asked_for_by_name_says_what_it_does_not_support() -> None:
    pytest.importorskip("numba")
    model = DeconvNet(replace(MODEL, layers=(replace(MODEL.layers[0], pool_maps=2),)))
    problem = Problem(model, torch.zeros(1, 1, 8, 8), Phase(layer=1))
    with raises(UnsupportedProblem, engine="cpu") as caught:
        get_engine("cpu").solve(problem)
    assert caught.value.reason.startswith("model.layers.1.pool_maps = 2 (it supports")
