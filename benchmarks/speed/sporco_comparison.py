"""Convolutional sparse coding: the CPU engine against SPORCO's `cbpdn`, by ADMM and by PGM.

    python -m benchmarks.speed.sporco_comparison --out
    benchmarks/speed/results/sporco_comparison.json

One layer without pooling, the same filters, λ, float32, non-negative codes, one thread for
everyone. Measured is the time until the objective is within 1 % of the best that any method reached
when run long.

The problems are the same. Ours is λ/2 ‖Rp - v‖² + ‖p‖₁, SPORCO's is 1/λ of it. SPORCO's convolution
is circular, ours is not: so the images get a frame of K - 1 zeros, beyond which no useful code can
reach, and both have the same minimum. Every code is evaluated by the same function:
`DeconvNet.objective` in float64.

SPORCO is given each of several settings, among them its own recommended ones, and the best of them
counts; preparing its transforms is not counted. Ours is the whole call, from the image to the code.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
import sporco.fft
import torch
from sporco.admm import cbpdn as admm
from sporco.pgm import cbpdn as pgm
from sporco.pgm.backtrack import BacktrackRobust, BacktrackStandard
from torch import Tensor

from benchmarks.machine import machine
from whatwhere import override
from whatwhere.data import load
from whatwhere.engines import get_engine
from whatwhere.engines.cpu.batch_solver import initial_latents
from whatwhere.engines.reference.step_size import lipschitz
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet
from whatwhere.model import Problem as Asked
from whatwhere.spec import (
    EveryEpoch,
    Fixed,
    InferenceSpec,
    LayerSpec,
    LineSearch,
    ModelSpec,
    Phase,
    Recipe,
    Sum,
)

CLOSE = 1.01  # of the best objective
PHASE = Phase(layer=1)


@dataclass(frozen=True)
class Problem:
    """Images [N, 1, H, W] with their frame of zeros, and λ."""

    name: str
    images: Tensor
    lam: float


@dataclass(frozen=True)
class Visit:
    """A point on a method's way: how many steps, how long it took (processor and wall), the
    objective there."""

    steps: int
    processor: float
    wall: float
    cost: float


def learn_filters() -> DeconvNet:
    """16 filters of 5×5, learnt on 500 digits without pooling."""
    spec = ModelSpec(layers=(LayerSpec(maps=16, pool_size=1, pooling=Sum()),))
    brief = {
        "batch_size": 500,
        "learning": {
            "each": {"epochs": 6, "update": EveryEpoch(reset_at=[]), "inference": {"steps": 20}}
        },
    }
    recipe = override(Recipe(model=spec, learning=Recipe().learning[:1]), brief)
    digits = load("digits", split="train")[slice(0, 500)]
    return train(digits, recipe, options=TrainingOptions(device="cpu")).model


def problems(model: DeconvNet, lam: float) -> Iterator[Problem]:
    border = model.spec.layers[0].filter_size - 1
    digits = load("digits", split="test")[slice(0, 100)]
    photograph = torch.from_numpy(skimage.data.camera()).float()[None, None] / 255
    photograph = torch.nn.functional.avg_pool2d(photograph, 2)
    for name, images in (("100 digits, 28×28", digits), ("photograph, 256×256", photograph)):
        yield Problem(name, torch.nn.functional.pad(images, [border] * 4), lam)


def objective_sum(model: DeconvNet, problem: Problem, p: Tensor) -> float:
    """The objective of all images together, in float64."""
    double = model.to(torch.float64)
    asked = Asked(double, problem.images.double(), PHASE, InferenceSpec(lam=problem.lam))
    return float(asked.objective(replace(initial_latents(asked), p=p.double())).cost.sum())


# The methods: each yields its visits, up to a given number of steps ----------------------------


def ours(model: DeconvNet, problem: Problem, spec: InferenceSpec, most: int) -> Iterator[Visit]:
    """Whole solves of more and more steps; the time of each is the best of three."""
    steps = 2
    while steps <= most:
        settings = InferenceSpec(**{**vars(spec), "steps": steps})
        processor, wall = float("inf"), float("inf")
        for _ in range(3):
            since = time.process_time(), time.perf_counter()
            p = get_engine("cpu").solve(Asked(model, problem.images, PHASE, settings)).features
            processor = min(processor, time.process_time() - since[0])
            wall = min(wall, time.perf_counter() - since[1])
        yield Visit(steps, processor, wall, objective_sum(model, problem, p))
        steps = next_visit(steps)


def next_visit(steps: int) -> int:
    """Objectives are looked at after 2, 3, …, 10, 11, 12, …, 20, 22, … steps, of every method."""
    return max(steps + 1, int(steps * 1.1))


def theirs(
    model: DeconvNet, problem: Problem, make: Callable[..., Any], options: dict[str, Any], most: int
) -> list[Visit]:
    """One run of a SPORCO solver; its clock is stopped while a code is evaluated."""
    visits: list[Visit] = []
    used, since, steps, visit_at = [0.0, 0.0], [0.0, 0.0], 0, 2

    def after_step(solver: Any) -> None:
        nonlocal steps, visit_at
        used[0] += time.process_time() - since[0]
        used[1] += time.perf_counter() - since[1]
        steps += 1
        if steps == visit_at:
            code = solver.Y if hasattr(solver, "U") else solver.X
            visits.append(
                Visit(
                    steps, *used, objective_sum(model, problem, as_features(model, problem, code))
                )
            )
            visit_at = next_visit(steps)
        since[:] = time.process_time(), time.perf_counter()

    D = model.filters[0][0].permute(1, 2, 0).numpy()
    S = problem.images[:, 0].permute(1, 2, 0).numpy()
    options = {
        "MaxMainIter": most,
        "NonNegCoef": True,
        "FastSolve": True,
        "RelStopTol": 0.0,
        **options,
    }
    solver = make(D, S, 1 / problem.lam, {**options, "Callback": after_step})
    since[:] = time.process_time(), time.perf_counter()
    solver.solve()
    return visits


def as_features(model: DeconvNet, problem: Problem, code: np.ndarray) -> Tensor:
    """SPORCO's code [H, W, 1, N, B] at the places of ours, which begins K - 1 earlier."""
    border = model.spec.layers[0].filter_size - 1
    x = torch.from_numpy(np.ascontiguousarray(code)).reshape(
        *code.shape[:2], len(problem.images), -1
    )
    return torch.nn.functional.pad(x.permute(2, 3, 0, 1), (border, 0, border, 0))


def admm_solver(D: np.ndarray, S: np.ndarray, lmbda: float, options: dict[str, Any]) -> Any:
    return admm.ConvBPDN(D, S, lmbda, admm.ConvBPDN.Options(options), dimK=1)


def pgm_solver(D: np.ndarray, S: np.ndarray, lmbda: float, options: dict[str, Any]) -> Any:
    return pgm.ConvBPDN(D, S, lmbda, pgm.ConvBPDN.Options(options), dimK=1)


def sporco_settings(
    model: DeconvNet, lam: float
) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Its defaults, its recommended automatic penalty and backtracking, and exact constants that
    it could be told."""
    gain = lipschitz(model, 1)
    still = {"AutoRho": {"Enabled": False}, "HighMemSolve": True}
    return {
        "ADMM, automatic ρ": (admm_solver, {"HighMemSolve": True}),
        "ADMM, automatic ρ from 10/λ": (admm_solver, {"HighMemSolve": True, "rho": 10 / lam}),
        "ADMM, ρ = 1/λ": (admm_solver, {**still, "rho": 1 / lam}),
        "ADMM, ρ = 10/λ": (admm_solver, {**still, "rho": 10 / lam}),
        "ADMM, ρ = 50/λ + 1": (admm_solver, {**still, "rho": 50 / lam + 1}),
        "PGM, exact L": (pgm_solver, {"L": gain}),
        "PGM, backtracking": (pgm_solver, {"L": 1.0, "Backtrack": BacktrackStandard()}),
        "PGM, robust backtracking": (pgm_solver, {"L": gain / 2, "Backtrack": BacktrackRobust()}),
    }


def our_settings(lam: float) -> dict[str, InferenceSpec]:
    return {
        "FISTA, line search": InferenceSpec(lam=lam, step=LineSearch(momentum=True)),
        "FISTA, fixed step": InferenceSpec(lam=lam, step=Fixed(momentum=True)),
    }


def compare(
    model: DeconvNet, problem: Problem, long: int, log: Callable[[str], None]
) -> dict[str, Any]:
    """Every method's way to within 1 % of the best objective."""
    ways: dict[str, list[Visit]] = {}
    best = float("inf")
    for name, (make, options) in sporco_settings(model, problem.lam).items():
        ways[f"SPORCO {name}"] = theirs(model, problem, make, options, long)
        best = min(best, *(visit.cost for visit in ways[f"SPORCO {name}"]))
    accurate = InferenceSpec(lam=problem.lam, step=Fixed(momentum=True), steps=5 * long)
    thorough = get_engine("cpu").solve(Asked(model, problem.images, PHASE, accurate)).features
    best = min(best, objective_sum(model, problem, thorough))
    for name, spec in our_settings(problem.lam).items():
        ways[f"whatwhere {name}"] = until(ours(model, problem, spec, 5 * long), CLOSE * best)
    rows = []
    for name, visits in ways.items():
        there = next((visit for visit in visits if visit.cost <= CLOSE * best), None)
        rows.append(
            {
                "method": name,
                **(vars(there) if there else {"steps": None, "last": vars(visits[-1])}),
            }
        )
        time_needed = f"{there.processor:8.3f} s in {there.steps} steps" if there else "not reached"
        log(f"{problem.name:<22} {name:<40} {time_needed}")
    return {
        "problem": problem.name,
        "lam": problem.lam,
        "best": best,
        "rows": rows,
        "ratios": ratios(rows),
    }


def until(visits: Iterator[Visit], target: float) -> list[Visit]:
    seen = []
    for visit in visits:
        seen.append(visit)
        if visit.cost <= target:
            break
    return seen


def ratios(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """How many times faster our best setting was than the best of ADMM and of PGM, by processor
    time."""

    def fastest(start: str) -> float:
        return min(
            (r["processor"] for r in rows if r["method"].startswith(start) and r["steps"]),
            default=float("inf"),
        )

    ours = fastest("whatwhere")
    return {kind: fastest(f"SPORCO {kind}") / ours for kind in ("ADMM", "PGM")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--lam", type=float, default=5.0)
    parser.add_argument(
        "--long", type=int, default=200, help="steps of SPORCO's runs; ours have five times as many"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sporco.fft.pyfftw_threads = 1
    torch.set_grad_enabled(False)
    with torch.enable_grad():
        model = learn_filters()
    results = [
        compare(model, problem, arguments.long, print) for problem in problems(model, arguments.lam)
    ]
    for result in results:
        print(
            result["problem"],
            {kind: f"{ratio:.1f} times faster" for kind, ratio in result["ratios"].items()},
        )
    packages = {name: version(name) for name in ("sporco", "pyfftw", "scikit-image")}
    report = {
        "benchmark": "sporco",
        "machine": machine(),
        "packages": packages,
        "threads": 1,
        "results": results,
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
