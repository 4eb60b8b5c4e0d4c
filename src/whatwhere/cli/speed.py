"""The speed of inference: every engine on the same images, side by side in one process.

The unit is the image-iteration: one step of inference for one image. Sparse engines are faster on sparse
features, so the model is trained for a moment first, and latents are warmed up by one solve.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whatwhere.data import load
from whatwhere.inference import ista
from whatwhere.inference.engines import ENGINES
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import InferenceSpec, LayerSpec, LineSearch, ModelSpec, Phase, PoolingKind, Recipe
from whatwhere.spec.toml import override

Solve = Callable[[Problem], Solution]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to measure.

    compiled  on a GPU, also the reference step compiled by torch, which takes half a minute
    """

    name: str
    phase: Phase
    spec: InferenceSpec
    pooling_kind: PoolingKind = "gaussian"
    compiled: bool = False


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """How fast one engine ran one case: image-iterations a second."""

    case: str
    engine: str
    threads: int
    images: int
    steps: int
    median: float
    best: float
    seconds: tuple[float, ...]


JOINT = Phase(layer=2, update_pooling=(1, 2))


def cases(steps: int) -> tuple[Case, ...]:
    """The paper's settings in training and at test, and the variants that an engine must support."""
    training = InferenceSpec(lam=0.5, alpha=0.5, step=LineSearch(per="batch"), steps=steps)
    test = InferenceSpec(lam=5.0, alpha=1.0, steps=steps)
    layer_1 = Phase(layer=1, update_pooling=(1,))
    return (
        Case(name="joint, batch step, α ½", phase=JOINT, spec=training, compiled=True),
        Case(name="joint, image step, α 1", phase=JOINT, spec=test),
        Case(name="joint, image step, α ½", phase=JOINT, spec=replace(test, alpha=0.5)),
        Case(name="joint, θ₁ frozen, batch step", phase=Phase(layer=2, update_pooling=(2,)), spec=training),
        Case(name="joint, max pooling, batch step", phase=JOINT, spec=training, pooling_kind="max"),
        Case(name="layer 1, batch step, α ½", phase=layer_1, spec=replace(training, lam=2.0), compiled=True),
        Case(name="layer 1, image step, α 1", phase=layer_1, spec=test),
    )


def bench_inference(
    device: torch.device, *, images: int, steps: int, repeats: int, log: Callable[[str], None] = print
) -> list[Measurement]:
    """Measure every case with every engine that supports it."""
    chosen = cases(steps)
    digits = load("digits", split="train")[slice(0, min(images, 5000))]
    v = digits.repeat(-(-images // len(digits)), 1, 1, 1)[:images].to(device)
    measurements = []
    for pooling_kind in dict.fromkeys(case.pooling_kind for case in chosen):
        model = prepared_model(pooling_kind, device)
        for case in chosen:
            if case.pooling_kind == pooling_kind:
                measurements += measure(case, model, v, repeats, log)
    return measurements


def prepared_model(pooling_kind: PoolingKind, device: torch.device) -> DeconvNet:
    """The paper's architecture after a short training on 500 digits, so that features are as sparse as in use."""
    layers = (LayerSpec(maps=16, pooling_kind=pooling_kind), LayerSpec(maps=48, fan_in=8, pooling_kind=pooling_kind))
    brief = {
        "batch_size": 500,
        "learning": {"each": {"epochs": 4, "update": {"reset_at": [2]}, "inference": {"steps": 20}}},
    }
    recipe = override(Recipe(model=ModelSpec(layers=layers)), brief)
    options = TrainingOptions(device=str(device))
    return train(recipe, load("digits", split="train")[slice(0, 500)], options=options).model


def measure(case: Case, model: DeconvNet, v: Tensor, repeats: int, log: Callable[[str], None]) -> list[Measurement]:
    """One case through every engine that supports it, at each number of threads."""
    measurements = []
    for name, solve in solvers(case, model, v):
        for threads in (1, 2) if v.device.type == "cpu" else (1,):
            with torch_threads(threads), torch.no_grad():
                result = time_solve(case, name, threads, solve, model, v, repeats)
            log(f"{case.name:<32} {name:<10} {threads} thread(s)  {result.median:>14,.0f} image-iterations/s")
            measurements.append(result)
    return measurements


def solvers(case: Case, model: DeconvNet, v: Tensor) -> Iterator[tuple[str, Solve]]:
    """The engines that support a case; on a GPU, where the case asks for it, also the compiled reference step."""
    if v.device.type == "cuda" and case.compiled:
        yield "compiled", compiled_solve()
    for name, engine in ENGINES.items():
        if engine.unsupported_reason(Problem(model, v, case.phase, case.spec)) is None:
            yield name, engine.solve


def compiled_solve() -> Solve:
    """The reference loop over a step compiled by torch, with TF32 convolutions: what PyTorch alone can do."""
    step = torch.compile(ista.step, dynamic=False)

    def solve(problem: Problem) -> Solution:
        allowed = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = True
        state = ista.start(problem)
        for _ in range(problem.spec.steps):
            state, measured, beta = step(problem, state)
        torch.backends.cudnn.allow_tf32 = allowed
        return Solution(state.latents, ista.stats([measured], [beta]), "compiled")

    return solve


def time_solve(
    case: Case, name: str, threads: int, solve: Solve, model: DeconvNet, v: Tensor, repeats: int
) -> Measurement:
    """Warm up, then time whole solves that start from the warm latents."""
    problem = Problem(model, v, case.phase, case.spec)
    problem = replace(problem, latents=solve(problem).latents)
    seconds = []
    for _ in range(repeats):
        synchronise(v.device)
        start = time.perf_counter()
        solve(problem)
        synchronise(v.device)
        seconds.append(time.perf_counter() - start)
    work = len(v) * case.spec.steps
    return Measurement(
        case=case.name,
        engine=name,
        threads=threads,
        images=len(v),
        steps=case.spec.steps,
        median=work / statistics.median(seconds),
        best=work / min(seconds),
        seconds=tuple(seconds),
    )


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run with this many threads, then as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def speedup_rows(measurements: list[Measurement]) -> list[dict[str, Any]]:
    """Rows with the speed-up over the reference engine at the same number of threads, best against best."""
    reference = {(m.case, m.threads): m.best for m in measurements if m.engine == "reference"}
    return [{**asdict(m), "speedup": m.best / reference[m.case, m.threads]} for m in measurements]
