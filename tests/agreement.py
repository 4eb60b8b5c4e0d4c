"""Cases on which a fast engine must agree with the reference in float64, and how the difference is
measured."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from examples import SPECS, filter_problem, random_images, random_latents, random_mask
from whatwhere.engines import Engine
from whatwhere.engines.reference import ista
from whatwhere.inference.target import make_target
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import (
    Fixed,
    InferenceSpec,
    InputSpec,
    LayerSpec,
    LineSearch,
    ModelSpec,
    Phase,
    Power,
)


@dataclass(frozen=True)
class Agreement:
    """One problem: a model, images of a size, and what differs from the default settings of
    inference."""

    model: ModelSpec
    images: int = 3
    height: int = 9
    width: int = 8
    layer: int | None = None  # the phase's layer; None is the top
    still: tuple[int, ...] = ()  # layers whose pooling does not move
    fresh: bool = False  # start anew instead of from random latents
    mask: str = ""  # the kind of `random_mask`
    spec: dict[str, Any] = field(default_factory=dict)


ONE, TWO = SPECS["1 layer"], SPECS["2 layers"]
WIDE = ModelSpec(layers=(LayerSpec(maps=18), LayerSpec(maps=33, fan_in=7)))
TWO_CHANNELS, FIVE_CHANNELS = replace(TWO, channels=2), replace(TWO, channels=5)
ONOFF = replace(TWO, input=InputSpec(kind="onoff", sigma=1.0, contrast=0.8))
UNPOOLED = ModelSpec(layers=(LayerSpec(maps=5, filter_size=4, pool_size=1),))
LARGE = ModelSpec(layers=(LayerSpec(maps=5, filter_size=12, pool_size=7),))
ONE_MAP = ModelSpec(layers=(LayerSpec(maps=1, filter_size=8, pool_size=1),))
OVERLAPPING = ModelSpec(
    layers=(
        LayerSpec(maps=40, pool_size=4, pool_stride=3),
        LayerSpec(maps=51, filter_size=3, pool_stride=1),
    )
)
OVERLAPPING_MAX = replace(
    OVERLAPPING,
    layers=tuple(replace(layer, maps=6, pooling="max") for layer in OVERLAPPING.layers),
)
RECTANGULAR = SPECS["2 layers, rectangular"]
RECTANGULAR_WIDE = ModelSpec(
    layers=(
        LayerSpec(maps=18, filter_size=(3, 5), pool_size=(2, 3)),
        LayerSpec(maps=33, filter_size=(5, 3), pool_size=(3, 2), pool_stride=(3, 1), fan_in=7),
    )
)
RECTANGULAR_MAX = replace(
    RECTANGULAR, layers=tuple(replace(layer, pooling="max") for layer in RECTANGULAR.layers)
)
SIGNALS = ModelSpec(
    layers=(
        LayerSpec(maps=18, filter_size=(1, 9), pool_size=(1, 2)),
        LayerSpec(maps=17, filter_size=(1, 5), pool_size=(1, 3)),
    )
)
FEW_WAVEFORMS = ModelSpec(
    layers=(LayerSpec(maps=3, filter_size=(1, 13), pool_size=(1, 2), pool_stride=(1, 1)),),
    channels=3,
    signed_filters=True,
)
RECTANGULAR_LARGE = ModelSpec(layers=(LayerSpec(maps=5, filter_size=(3, 12), pool_size=(2, 5)),))
HALF = {"penalty": Power(alpha=0.5)}  # α = ½
AGREEMENTS = {
    # few features are not zero: the CPU engine visits only those
    "rectangular, sparse": Agreement(
        RECTANGULAR_LARGE, height=17, width=23, fresh=True, spec={"lam": 0.3}
    ),
    "rectangular": Agreement(RECTANGULAR, height=17, width=23),
    "rectangular, many maps": Agreement(RECTANGULAR_WIDE, 2, 17, 23, fresh=True),
    "rectangular, max, weights": Agreement(RECTANGULAR_MAX, mask="weights", fresh=True),
    "signals": Agreement(SIGNALS, height=1, width=61, fresh=True, mask="weights"),
    "signals, one layer, dense": Agreement(
        SIGNALS, height=1, width=61, layer=1, spec={"penalty": Power(alpha=0.5)}
    ),
    "signals, few waveforms": Agreement(FEW_WAVEFORMS, height=1, width=61, fresh=True),
    "signals, few waveforms, dense": Agreement(
        FEW_WAVEFORMS, height=1, width=61, mask="weights", spec={"step": LineSearch(momentum=True)}
    ),
    "1 layer, 12×12 filters, 7×7 regions": Agreement(LARGE, height=17, width=23, fresh=True),
    "1 layer, 12×12 filters, 7×7 regions, dense": Agreement(LARGE, height=17, width=23),
    "1 layer, one map, no pooling": Agreement(ONE_MAP, height=17, width=23, fresh=True),
    "1 layer, 17×23": Agreement(ONE, height=17, width=23),
    "1 layer, one pixel": Agreement(ONE, height=1, width=1),
    "1 layer, no pooling": Agreement(
        UNPOOLED, height=17, width=23, spec={"step": LineSearch(momentum=True)}
    ),
    "paper, fresh": Agreement(ModelSpec.paper(), images=2, height=28, width=28, fresh=True),
    "paper, 17×23, batch step": Agreement(
        ModelSpec.paper(), 2, 17, 23, spec={"step": LineSearch(per="batch")}
    ),
    "paper, layer 1 alone": Agreement(ModelSpec.paper(), 2, 28, 28, layer=1, fresh=True),
    "wide, 32×32": Agreement(WIDE, images=1, height=32, width=32, fresh=True),
    "2 layers, batch step, α ½": Agreement(
        TWO, images=25, spec={"step": LineSearch(per="batch"), **HALF}
    ),
    "2 layers, fixed step, α ½": Agreement(
        TWO, spec={"step": Fixed(), "penalty": Power(alpha=0.5)}
    ),
    "2 layers, image step, α ½": Agreement(TWO, images=9, spec={"penalty": Power(alpha=0.5)}),
    "1 image, batch step": Agreement(TWO, images=1, spec={"step": LineSearch(per="batch")}),
    "2 layers, momentum, fixed step": Agreement(TWO, spec={"step": Fixed(momentum=True)}),
    "2 layers, momentum, batch step": Agreement(
        TWO, images=25, spec={"step": LineSearch(per="batch", momentum=True)}
    ),
    "2 layers, α 0.7": Agreement(TWO, spec={"penalty": Power(alpha=0.7)}),
    "2 layers, θ₁ frozen": Agreement(TWO, still=(1,)),
    "2 layers, θ frozen": Agreement(TWO, still=(1, 2)),
    "2 layers, no step": Agreement(TWO, spec={"steps": 0}),
    "2 layers, 3×3 regions, ragged": Agreement(SPECS["2 layers, 3×3 regions"], height=17, width=23),
    "2 layers, overlapping": Agreement(SPECS["2 layers, overlapping"], height=17, width=23),
    "2 layers, overlapping, fresh": Agreement(
        SPECS["2 layers, overlapping"], fresh=True, spec={"step": LineSearch(momentum=True)}
    ),
    "overlapping, many maps": Agreement(OVERLAPPING, images=1, height=12, width=14, fresh=True),
    "overlapping, max, weights": Agreement(OVERLAPPING_MAX, images=2, mask="weights"),
    "2 layers, max": Agreement(SPECS["2 layers, max"]),
    "2 layers, sum": Agreement(SPECS["2 layers, sum"]),
    "2 layers, signed": Agreement(SPECS["2 layers, signed"]),
    "2 layers, signed, α ½": Agreement(
        SPECS["2 layers, signed"], spec={"penalty": Power(alpha=0.5)}
    ),
    "2 layers, per filter": Agreement(SPECS["2 layers, per filter"]),
    "3 layers, colour": Agreement(SPECS["3 layers, colour"], height=17, width=23),
    "colour, 32×32": Agreement(SPECS["1 layer, colour"], height=32, width=32, fresh=True),
    "2 channels": Agreement(TWO_CHANNELS, fresh=True),
    "5 channels": Agreement(FIVE_CHANNELS, height=17, width=23, fresh=True),
    "ON/OFF": Agreement(ONOFF, fresh=True),
    "known pixels, fresh": Agreement(TWO, mask="known", fresh=True),
    "known pixels, max, fresh": Agreement(SPECS["2 layers, max"], mask="known", fresh=True),
    "weights, paper, fresh": Agreement(ModelSpec.paper(), 2, 28, 28, mask="weights", fresh=True),
    "weights, batch step, α ½": Agreement(
        TWO,
        images=25,
        mask="weights",
        spec={"step": LineSearch(per="batch"), **HALF},
    ),
    "weights, fixed step": Agreement(TWO, mask="weights", spec={"step": Fixed(momentum=True)}),
    "weights, no pooling": Agreement(UNPOOLED, height=17, width=23, mask="weights"),
    "weights per channel, 2 channels": Agreement(
        TWO_CHANNELS, mask="weights per channel", fresh=True
    ),
    "known per channel, 5 channels": Agreement(FIVE_CHANNELS, mask="known per channel", fresh=True),
    "weights, 3 layers, colour": Agreement(
        SPECS["3 layers, colour"], height=17, width=23, mask="weights"
    ),
    "known pixels, ON/OFF": Agreement(ONOFF, mask="known", fresh=True),
}


@functools.cache
def solved_by_reference(name: str) -> tuple[Problem, Solution]:
    """A problem in float64 and the reference's solution, once for all engines and dtypes."""
    case = AGREEMENTS[name]
    model = DeconvNet(case.model, seed=0, dtype=torch.float64)
    images = random_images(case.model, case.images, case.height, case.width)
    target = make_target(model, images, random_mask(images, case.mask))
    latents = Latents() if case.fresh else random_latents(model, target.v)
    layer = case.layer or case.model.depth
    phase = Phase(
        layer=layer, update_pooling=tuple(k for k in range(1, layer + 1) if k not in case.still)
    )
    spec = InferenceSpec(**{"lam": 2.0, "steps": 4, "pooling_step": 0.1, **case.spec})
    problem = Problem(model, target.v, phase, spec, latents, target.mask)
    return problem, ista.solve(problem)


def solve_both(name: str, engine: Engine, dtype: torch.dtype) -> tuple[Solution, Solution]:
    """The engine's solution in this dtype, and the reference's in float64, of the same problem."""
    exact, truth = solved_by_reference(name)
    problem = replace(
        exact,
        model=exact.model.to(dtype),
        images=exact.images.to(dtype),
        latents=exact.latents.to(dtype),
        mask=None if exact.mask is None else exact.mask.to(dtype),
    )
    return engine.solve(problem), truth


def influence_of_unknown_pixels(
    engine: Engine, dtype: torch.dtype, device: str = "cpu"
) -> dict[str, float]:
    """How much a solve and a filter map change when only pixels of weight 0 change: 0 is expected,
    to the last bit."""
    model = DeconvNet(TWO_CHANNELS, dtype=torch.float64)
    images = random_images(TWO_CHANNELS, 2, 5, 4)
    mask, latents = random_mask(images, "weights per channel"), random_latents(model, images)
    assert mask is not None
    other = torch.where(mask > 0, images, random_images(TWO_CHANNELS, 2, 5, 4, seed=9))
    assert not torch.equal(images, other)
    low, latents, mask = model.to(device, dtype), latents.to(device, dtype), mask.to(device, dtype)
    phase, spec = Phase(layer=2, update_pooling=(1, 2)), InferenceSpec(lam=2.0, steps=1)
    changes: dict[str, float] = {}
    results = []
    for v in (images.to(device, dtype), other.to(device, dtype)):
        solution = engine.solve(Problem(low, v, phase, spec, mask=mask))
        gradients = [
            engine.filter_map(filter_problem(low, v, latents, mask), k).negative_gradient(
                low.filters[k - 1]
            )
            for k in (1, 2)
        ]
        stats = solution.stats
        results.append([*solution.latents.tensors(), stats.cost, stats.step, *gradients])
    for i, (one, two) in enumerate(zip(*results, strict=True)):
        changes[f"result {i}"] = float((one - two).abs().max())
    return changes


def differences(found: Solution, truth: Solution) -> dict[str, float]:
    """The relative difference ‖x - truth‖ / ‖truth‖ of everything that a solve returns."""
    pairs = {"p": (found.features, truth.features)}
    for k, (ours, theirs) in enumerate(
        zip(found.latents.pooling_params, truth.latents.pooling_params, strict=True), start=1
    ):
        pairs |= {f"mu {k}": (ours.mu, theirs.mu), f"gamma {k}": (ours.gamma, theirs.gamma)}
    for name in ("reconstruction", "penalty", "nonzeros", "step"):
        pairs[name] = getattr(found.stats, name), getattr(truth.stats, name)
    return {name: relative(*pair) for name, pair in pairs.items()}


def relative(found: torch.Tensor, truth: torch.Tensor) -> float:
    assert found.shape == truth.shape, (found.shape, truth.shape)
    return float((found.double() - truth.double()).norm() / truth.double().norm().clamp(min=1e-30))
