"""Cases that the kernels are compared on, and the comparison with the float64 reference.

Run as a program (with TRITON_INTERPRET=1, before triton is imported) it compares them all in
Triton's interpreter and prints one JSON object: case → quantity → relative error.
"""

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from agreement import (
    FIVE_CHANNELS,
    ONOFF,
    RECTANGULAR,
    RECTANGULAR_WIDE,
    TWO_CHANNELS,
    influence_of_unknown_pixels,
)
from agreement import OVERLAPPING as WIDE_OVERLAPPING
from examples import SPECS, backwards, filter_problem, random_images, random_latents, random_mask
from whatwhere.engines import get_engine
from whatwhere.engines.reference import ista
from whatwhere.engines.reference.filter_map import FilterMap
from whatwhere.inference.target import make_target
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import (
    Fixed,
    InferenceSpec,
    LayerSpec,
    LineSearch,
    ModelSpec,
    MomentFit,
    Phase,
    Power,
    Schedule,
    StepSpec,
)

# Relative errors ‖x - reference‖ / ‖reference‖ that the arithmetic allows: products of float16 (11
# bits, so 5e-4 an operand), sums and everything else in float32. The interpreter and the device are
# held to the same table. Of θ it is the movement that is compared: ‖θ - reference‖ / ‖reference -
# start‖.
TOLERANCE = {"float16 products": {1: 2e-3, 3: 5e-3, 6: 5e-3}}
NONZEROS = (
    1e-2  # of their number: features at the very edge of the threshold may fall on either side
)


@dataclass(frozen=True)
class Case:
    model: ModelSpec
    images: int = 2
    height: int = 7
    width: int = 6
    steps: int = 1
    still: tuple[int, ...] = ()  # layers whose pooling does not move
    loud: float = 1.0  # the images' largest value
    start: float | None = 0.1  # about how large features are to begin with; None: nothing is known
    corner: int | None = None  # images and features beyond it are 0
    mask: str = ""  # the kind of `random_mask`
    weight: float = 1.0  # about how large its weights are
    untied: bool = False  # the pass up has filters of its own
    spec: dict[str, Any] = field(default_factory=dict)


ONE, TWO = SPECS["1 layer"], SPECS["2 layers"]
OVERLAPPING, SIGNALS = SPECS["2 layers, overlapping"], SPECS["2 layers, signals"]
LONG_SIGNALS = ModelSpec(
    layers=(LayerSpec(maps=10, filter_size=(1, 64), pool_size=(1, 8), pool_stride=(1, 4)),)
)
SPARSE = ModelSpec(layers=(LayerSpec(maps=16, filter_size=3),))
CLOSE = ModelSpec(layers=(LayerSpec(maps=2, filter_size=3, pool_stride=1),))


def with_switches(layer: LayerSpec) -> LayerSpec:
    return replace(layer, pooling="max")


def schedule(steps: int) -> dict[str, Any]:
    """Sizes of steps that differ in everything."""
    sizes = tuple(
        StepSpec(
            size=0.01 + 0.002 * t,
            threshold=0.02 - 0.003 * t,
            extrapolation=0.15 * t,
            pooling_step=(0.5 + t / 10, 0.3),
        )
        for t in range(steps)
    )
    return {"step": Schedule(steps=sizes, mu_scale=(1.2, 0.7), gamma_scale=(0.5,), contrast=0.8)}


CASES = {
    "1 layer, 11×9": Case(ONE, images=1, height=11, width=9),
    "1 layer, fixed step": Case(ONE, spec={"step": Fixed(), "penalty": Power(alpha=0.5)}),
    "2 layers, batch step, α ½": Case(
        TWO, images=5, spec={"step": LineSearch(per="batch"), "penalty": Power(alpha=0.5)}
    ),
    "2 layers, image step": Case(TWO, steps=3),
    # momentum soon brings the error near 0, where its last digits make β
    "2 layers, momentum": Case(
        SPECS["2 layers, per filter"], steps=3, spec={"step": LineSearch(momentum=True)}
    ),
    "1 layer, momentum restarts": Case(
        ONE,
        height=5,
        width=4,
        steps=6,
        start=3.0,
        still=(1,),
        spec={"step": LineSearch(momentum=True), "lam": 0.3},
    ),
    "2 layers, schedule": Case(TWO, steps=3, spec=schedule(3)),
    "3 layers, colour, schedule, α ½": Case(
        SPECS["3 layers, colour"], mask="known", spec={**schedule(1), "penalty": Power(alpha=0.5)}
    ),
    "2 layers, schedule from zero, untied": Case(
        TWO, steps=3, start=None, spec=schedule(3), untied=True
    ),
    "3×3 regions, schedule from zero, mask": Case(
        SPECS["2 layers, 3×3 regions"],
        start=None,
        mask="weights",
        spec={**schedule(1), "moments": MomentFit(power=1)},
    ),
    "2 layers, α 0.7, frozen θ": Case(TWO, still=(1, 2), spec={"penalty": Power(alpha=0.7)}),
    "2 layers, 3×3 regions": Case(SPECS["2 layers, 3×3 regions"]),
    "2 layers, overlapping": Case(OVERLAPPING, images=1, height=6, width=5, spec={"step": Fixed()}),
    "overlapping, momentum": Case(
        CLOSE, images=1, height=3, width=4, spec={"step": LineSearch(momentum=True)}
    ),
    "2 layers, max": Case(SPECS["2 layers, max"]),
    "2 layers, signed": Case(SPECS["2 layers, signed"]),
    "3 layers, colour": Case(SPECS["3 layers, colour"]),
    "5 channels": Case(FIVE_CHANNELS),
    # weights up to 2 are squared: with λ = 2 the steps of θ would be so long that a few of them
    # amplify the rounding
    "weights per channel, 2 channels": Case(
        TWO_CHANNELS, mask="weights per channel", spec={"lam": 1.0}
    ),
    "known pixels, ON/OFF": Case(ONOFF, mask="known"),
    # the same problem as with weights near 1 and λ = 2: their squares are too large for float16
    "large weights": Case(TWO, mask="weights", weight=1000.0, spec={"lam": 2e-6}),
    # the way up takes one region of many images at a time, and rows in two pieces
    "many images": Case(replace(ONE, channels=17), 65, 3, 2, spec={"step": Fixed()}),
    # the way down leaves out regions that none of 64 images uses
    "unused regions": Case(
        SPARSE, 66, 3, 2, corner=1, spec={"step": LineSearch(per="batch"), "pooling_step": 0.1}
    ),
    "rectangular": Case(RECTANGULAR, images=2, height=5, width=6, spec={"step": Fixed()}),
    "signals, weights": Case(SIGNALS, height=1, width=21, mask="weights", spec={"lam": 1.0}),
    "signals, schedule from zero": Case(SIGNALS, height=1, width=21, start=None, spec=schedule(1)),
    "many maps": Case(
        ModelSpec(layers=(LayerSpec(maps=18), LayerSpec(maps=33, filter_size=3))), images=1
    ),
}

LARGE_CASES = {  # on the device only: the interpreter would take long
    "unused regions, image step": Case(SPARSE, 66, 3, 2, corner=1, spec={"pooling_step": 0.1}),
    "known per channel, momentum, batch step": Case(
        SPECS["3 layers, colour"],
        mask="known per channel",
        spec={"step": LineSearch(per="batch", momentum=True)},
    ),
    "2 layers, sum": Case(SPECS["2 layers, sum"]),
    "2 layers, θ₁ frozen, bright": Case(TWO, still=(1,), loud=255.0),
    "overlapping, batch step, α ½": Case(
        OVERLAPPING, 25, 17, 23, spec={"step": LineSearch(per="batch"), "penalty": Power(alpha=0.5)}
    ),
    "rectangular, weights": Case(
        RECTANGULAR, 25, 17, 23, mask="weights", spec={"step": LineSearch(per="batch")}
    ),
    "rectangular, many maps": Case(RECTANGULAR_WIDE, 3, 28, 28, spec={"pooling_step": 0.0005}),
    "long signals": Case(LONG_SIGNALS, 5, 1, 3000, steps=3, spec={"pooling_step": 0.01}),
    "overlapping, max": Case(
        replace(OVERLAPPING, layers=tuple(map(with_switches, OVERLAPPING.layers)))
    ),
    "overlapping, weights": Case(
        OVERLAPPING, mask="weights", spec={"step": LineSearch(momentum=True)}
    ),
    # with so many maps, steps of θ as in the other cases lead from one bound of μ to the other, and
    # where a gradient is near 0, rounding decides to which: the float64 reference with inputs
    # rounded to float16 then differs by 3e-3, too Larger features would make an error at z₂ of more
    # than 65,504, which is stored as float16 where regions overlap.
    "overlapping, many maps": Case(
        WIDE_OVERLAPPING,
        3,
        28,
        28,
        start=0.01,
        spec={"step": LineSearch(per="batch"), "pooling_step": 0.0005},
    ),
    "2 layers, 6001 images": Case(
        TWO, images=6001, spec={"step": LineSearch(per="batch"), "penalty": Power(alpha=0.5)}
    ),
    "paper, batch step": Case(
        ModelSpec.paper(), 130, 28, 28, spec={"step": LineSearch(per="batch"), "pooling_step": 0.01}
    ),
    "paper, image step": Case(ModelSpec.paper(), 130, 28, 28, steps=6, spec={"pooling_step": 0.01}),
    "3 layers, 32×32 colour": Case(SPECS["3 layers, colour"], images=7, height=32, width=32),
}

FILTER_CASES = {  # the model, and the kind of mask
    "filters, 2 layers": ("2 layers", ""),
    "filters, rectangular": ("2 layers, rectangular", ""),
    "filters, known per channel": ("1 layer, colour", "known per channel"),
}
LARGE_FILTER_CASES = {  # on the device only
    "filters, weights": ("2 layers", "weights"),
    "filters, 3 layers, known per channel": ("3 layers, colour", "known per channel"),
    "filters, overlapping": ("2 layers, overlapping", ""),
    "filters, overlapping, weights": ("2 layers, overlapping", "weights"),
}
UNKNOWN = "unknown pixels"  # changes them, and reports what else changes


def compare(case: Case, device: str) -> dict[str, float]:
    """Relative errors of everything that a solve returns, against the reference in float64."""
    reference = DeconvNet(case.model, seed=0, dtype=torch.float64)
    if case.untied:
        reference = reference.with_upward(
            DeconvNet(case.model, seed=1, dtype=torch.float64).filters
        )
    images = case.loud * random_images(case.model, case.images, case.height, case.width)
    if case.corner is not None:
        images[:, :, case.corner :], images[..., case.corner :] = 0, 0
    mask = random_mask(images, case.mask)
    target = make_target(reference, images, None if mask is None else case.weight * mask)
    images, mask = target.v, target.mask
    latents = random_latents(reference, images)
    if case.corner is not None:
        latents.p[:, :, case.corner :], latents.p[..., case.corner :] = 0, 0
    # what float32 can hold
    scale = case.loud * (case.start or 0.0)
    latents = Latents(scale * latents.p, latents.pooling_params).to(torch.float32).to(torch.float64)
    latents = Latents() if case.start is None else latents
    layer = case.model.depth
    phase = Phase(
        layer=layer, update_pooling=tuple(k for k in range(1, layer + 1) if k not in case.still)
    )
    spec = InferenceSpec(
        **{"lam": 2.0, "steps": case.steps, "pooling_step": 1 / case.loud**2, **case.spec}
    )
    mask = None if mask is None else mask.to(device)
    reference, images, latents = (x.to(device) for x in (reference, images, latents))
    truth = ista.solve(Problem(reference, images, phase, spec, latents, mask)).to("cpu")
    model, images, latents = (x.to(device, torch.float32) for x in (reference, images, latents))
    mask = None if mask is None else mask.float()
    with np.errstate(all="ignore"):  # the interpreter computes in numpy both sides of every `where`
        found = get_engine("triton").solve(
            Problem(model, images, phase, spec, latents.map(backwards), mask)
        )
    start = latents.to("cpu") if latents.pooling_params else truth.latents.map(torch.zeros_like)
    return errors(found.to("cpu"), truth, start)


def errors(found: Solution, truth: Solution, start: Latents) -> dict[str, float]:
    pairs = {"p": (found.features, truth.features)}
    thetas = zip(
        found.latents.pooling_params,
        truth.latents.pooling_params,
        start.pooling_params,
        strict=True,
    )
    for k, (ours, theirs, began) in enumerate(thetas, start=1):
        pairs[f"mu {k}"] = ours.mu - began.mu, theirs.mu - began.mu.double()
        pairs[f"gamma {k}"] = ours.gamma - began.gamma, theirs.gamma - began.gamma.double()
    for name in ("reconstruction", "penalty", "nonzeros", "step"):
        pairs[name] = getattr(found.stats, name).cpu(), getattr(truth.stats, name).cpu()
    return {name: relative_error(*pair) for name, pair in pairs.items()}


def relative_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """‖found - truth‖ / ‖truth‖; where the truth is 0 (θ that must not move), 0 if that was found
    and inf if not."""
    assert found.shape == truth.shape, (found.shape, truth.shape)
    missed, size = (found.double() - truth.double()).norm(), truth.double().norm()
    return float(missed / size) if size > 0 else 0.0 if missed == 0 else float("inf")


def compare_filter_map(name: str, kind: str, device: str) -> dict[str, float]:
    """Relative errors of AᵀA f (f too large for float16) and Aᵀ(v - A f), for the filters of every
    layer."""
    reference = DeconvNet(SPECS[name], seed=0, dtype=torch.float64)
    images = random_images(SPECS[name])
    latents = random_latents(reference, images)
    mask = random_mask(images, kind)
    own_mask = None if mask is None else mask.to(device, torch.float32)
    model, v, found = reference.to(device, torch.float32), images.to(device, torch.float32), {}
    for k, f in enumerate(reference.filters, start=1):
        truth = FilterMap(filter_problem(reference, images, latents, mask), k)
        ours = get_engine("triton").filter_map(
            filter_problem(model, v, latents.to(device, torch.float32), own_mask), k
        )
        big = 1e6 * f
        found[f"AᵀA {k}"] = relative_error(ours.normal(big.to(v)).cpu(), truth.normal(big))
        found[f"negative_gradient {k}"] = relative_error(
            ours.negative_gradient(f.to(v)).cpu(), truth.negative_gradient(f)
        )
    return found


def run(name: str, device: str) -> dict[str, float]:
    filter_cases = FILTER_CASES | LARGE_FILTER_CASES
    if name in filter_cases:
        return compare_filter_map(*filter_cases[name], device)
    if name == UNKNOWN:
        with np.errstate(all="ignore"):
            return influence_of_unknown_pixels(get_engine("triton"), torch.float32, device)
    return compare((CASES | LARGE_CASES)[name], device)


def poison_new_memory() -> None:
    """Fill memory that is only reserved with NaN, so that reading what nothing wrote shows."""
    from whatwhere.engines.triton import batch_memory

    class Poisoned:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        @staticmethod
        def empty_like(x: torch.Tensor) -> torch.Tensor:
            return torch.full_like(x, float("nan"))

        @staticmethod
        def empty(*shape: int, **options: Any) -> torch.Tensor:
            whole = options.get("dtype") == torch.int16
            return torch.full(shape, 12345 if whole else float("nan"), **options)

    batch_memory.torch = Poisoned()  # type: ignore[assignment]


if __name__ == "__main__":
    import fast_interpreter  # noqa: F401
    from whatwhere.engines.triton import filters, workspace

    torch.set_num_threads(1)
    poison_new_memory()
    filters.PROGRAMS = 2  # the interpreter runs them one by one
    workspace.FEW_ROWS = 64
    wanted = sys.argv[1:] or [*CASES, *FILTER_CASES, UNKNOWN]
    print(json.dumps({name: run(name, "cpu") for name in wanted}))
