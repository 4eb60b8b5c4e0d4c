"""Malformed latents and masks thrown at an engine: each must give a clear error or the right
numbers, never a crash.

Run as a program, `python tests/engines/malformed.py ENGINE EXAMPLES ...`, so that a crash ends a
process of its own. It prints one line for each outcome and fails if anything but a WhatwhereError
is raised, or if numbers differ.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from agreement import differences
from examples import SPECS, backwards, filter_problem, random_images, random_latents
from whatwhere.engines import get_engine
from whatwhere.errors import WhatwhereError
from whatwhere.inference import infer
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import InferenceSpec, Phase

SETTINGS = InferenceSpec(steps=1, lam=2.0, pooling_step=0.1)
NAMES = ("1 layer", "2 layers", "3 layers, colour", "2 layers, 3×3 regions", "2 layers, max")
TOLERANCE = 2e-4
outcomes: dict[str, int] = {}


def spread(tensor: Tensor) -> Tensor:
    """The same values with gaps in memory."""
    wide = torch.full((*tensor.shape, 3), 7.0, dtype=tensor.dtype)
    wide[..., 1] = tensor
    return wide[..., 1]


# what still means the same latents
HARMLESS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda t: t,
    "with gaps": spread,
    "backwards in memory": backwards,
    "that needs a gradient": lambda t: t.clone().requires_grad_(),
}
# what does not
CHANGES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "first of an axis": lambda t, axis: t.narrow(axis % t.ndim, 0, 1),
    "none of an axis": lambda t, axis: t.narrow(axis % t.ndim, 0, 0),
    "an axis twice": lambda t, axis: torch.cat([t, t], axis % t.ndim),
    "one more": lambda t, axis: torch.cat([t, t.narrow(axis % t.ndim, 0, 1)], axis % t.ndim),
    "one axis less": lambda t, axis: t.select(axis % t.ndim, 0),
    "one axis more": lambda t, axis: t.unsqueeze(axis % t.ndim),
    "flat": lambda t, axis: t.flatten(),
    "axes exchanged": lambda t, axis: t.transpose(axis % t.ndim, (axis + 1) % t.ndim),
    "scalar": lambda t, axis: t.sum(),
    "float64": lambda t, axis: t.double(),
    "float16": lambda t, axis: t.half(),
    "whole numbers": lambda t, axis: t.int(),
    "booleans": lambda t, axis: t > 0,
    "complex": lambda t, axis: t.to(torch.complex64),
    "NaN": lambda t, axis: t.where(torch.rand_like(t) < 0.9, float("nan")),
    "Inf": lambda t, axis: t.where(torch.rand_like(t) < 0.9, float("inf")),
    "huge": lambda t, axis: t + 1e30,
    "negative": lambda t, axis: -1 - t.abs(),
}
NOT_VALUES = [name for name in CHANGES if name not in ("NaN", "Inf", "huge", "negative")]


def problem(name: str, count: int) -> tuple[DeconvNet, Tensor, Latents]:
    model, images = DeconvNet(SPECS[name], dtype=torch.float64), random_images(SPECS[name], count)
    latents = random_latents(model, images)
    inside = [
        theta
        if layer.pooling.kind != "gaussian"
        else PoolingParams(theta.mu.clamp(-0.4, 0.4), theta.gamma)
        for theta, layer in zip(latents.pooling_params, model.spec.layers, strict=True)
    ]
    return (
        model.to(torch.float32),
        images.float(),
        replace(latents, pooling_params=tuple(inside)).to(torch.float32),
    )


def put(latents: Latents, place: int, change: Callable[[Tensor], Tensor]) -> Latents:
    """The latents with one of their tensors changed."""
    tensors = latents.tensors()
    tensors[place % len(tensors)] = change(tensors[place % len(tensors)])
    new = iter(tensors)
    return latents.map(lambda _: next(new))


def solve(
    engine: str, entry: str, model: DeconvNet, images: Tensor, latents: Latents, mask: Tensor | None
) -> Solution | Tensor:
    phase = Phase(layer=model.spec.depth, update_pooling=tuple(range(1, model.spec.depth + 1)))
    with torch.no_grad():
        if entry == "infer":
            return infer(
                model, images, SETTINGS, (phase,), mask=mask, latents=latents, engine=engine
            )
        if entry == "solve":
            return get_engine(engine).solve(Problem(model, images, phase, SETTINGS, latents, mask))
        linear_map = get_engine(engine).filter_map(filter_problem(model, images, latents, mask), 1)
        return linear_map.negative_gradient(model.filters[0])


def check(
    engine: str, entry: str, name: str, count: int, place: int, change: str, axis: int, kind: str
) -> None:
    model, images, latents = problem(name, count)
    mask = None if kind == "no mask" else (torch.rand(count, 1, 9, 8) < 0.7).float()

    def changes(tensor: Tensor) -> Tensor:
        return HARMLESS[change](tensor) if change in HARMLESS else CHANGES[change](tensor, axis)

    if mask is not None and kind == "malformed mask":
        changed, mask = latents, changes(mask)
    else:
        changed = put(latents, place, changes)
    try:
        found = solve(engine, entry, model, images, changed, mask)
    except WhatwhereError:
        if change in HARMLESS:
            raise
        outcomes["error"] = outcomes.get("error", 0) + 1
        return
    same = changed.map(lambda t: t.detach().float()).to(torch.float64)
    weight = None if mask is None else mask.detach().double()
    truth = solve("reference", entry, model.to(torch.float64), images.double(), same, weight)
    if isinstance(found, Tensor) and isinstance(truth, Tensor):
        worst = float((found - truth).norm() / truth.norm())
    else:
        worst = max(differences(found, truth).values())  # type: ignore[arg-type]
    assert worst <= TOLERANCE, (entry, name, change, worst)
    outcomes["the right numbers"] = outcomes.get("the right numbers", 0) + 1


def main(engine: str, examples: int) -> None:
    entries = ("infer", "solve", "filter_map")
    changes = {
        entry: [*HARMLESS, *(CHANGES if entry == "infer" else NOT_VALUES)] for entry in entries
    }
    cases = st.sampled_from(entries).flatmap(
        lambda entry: st.tuples(st.just(entry), st.sampled_from(changes[entry]))
    )

    kinds = st.sampled_from(("no mask", "no mask", "a mask", "malformed mask"))

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        cases,
        st.sampled_from(NAMES),
        st.integers(1, 3),
        st.integers(0, 6),
        st.integers(0, 5),
        kinds,
    )
    def thrown(
        case: tuple[str, str], name: str, count: int, place: int, axis: int, kind: str
    ) -> None:
        torch.manual_seed(place)
        check(engine, case[0], name, count, place, case[1], axis, kind)

    thrown()
    print(engine, outcomes)
    outcomes.clear()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, number in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        main(name, int(number))
