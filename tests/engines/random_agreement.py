"""Random problems solved by every engine and compared with the reference in float64.

    python tests/engines/random_agreement.py --cases 5000 --processes 2          (also: make
    compare)
    python tests/engines/random_agreement.py --first 1000000                     extreme images

A case draws a model, images and settings from its number. An engine agrees if every output differs
from the truth by no more than TOLERANCE. Some problems amplify rounding: at extreme contrast or λ a
step of the pooling variables overshoots, and a feature at the edge of a threshold falls on either
side. There the difference must be no larger than what rounding alone does, times SLACK: the
reference is solved again several times in float64 from inputs that are changed by the engine's unit
of rounding, and once in float32 if the engine computes in float32. What this does not explain is
reported as a disagreement, and the program fails. The reference in float32 is listed for
comparison: it is the same program, so what differs there is rounding.

The number of non-zero features is compared only where the penalty removes features of the size of
rounding errors. In images of 1e20 it does not: a feature whose gradient is exactly 0 gets 1e-15 of
the largest from the transforms of a fast convolution, and keeps it.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from agreement import differences
from examples import random_images, random_latents
from whatwhere.engines import REFERENCE, get_engine
from whatwhere.engines.reference import ista
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import Fixed, InferenceSpec, LayerSpec, LineSearch, ModelSpec, Phase, Power

# relative difference of every output that counts as agreement, and the relative rounding of one
# operation
TOLERANCE = {"cpu float64": 1e-9, "cpu float32": 1e-3, "reference float32": 1e-3, "triton": 2e-2}
ROUNDING = {
    "cpu float64": 2**-52,
    "cpu float32": 2**-23,
    "reference float32": 2**-23,
    "triton": 2**-11,
}
REPEATS = 8  # perturbed solves of the reference
# every operation rounds, sums of hundreds of terms and Winograd's transforms most; the inputs round
# once
SLACK = 100
EXTREME = 1_000_000  # from this number on images are extreme
FLOAT32_LIMIT = (
    1e15  # beyond it the objective is out of the range of float32, and `infer` raises an error
)
# of their number, or one at a step: features at the very edge of a threshold fall on either side
NONZEROS = 1e-2


def to(problem: Problem, dtype: torch.dtype) -> Problem:
    model, images, latents = (
        part.to(dtype) for part in (problem.model, problem.images, problem.latents)
    )
    return replace(problem, model=model, images=images, latents=latents)


def draw(number: int) -> Problem:
    """The problem of this number, in float64 with values that float32 can hold."""
    chance, footnotes = random.Random(number), random.Random(f"footnotes of {number}")
    torch.manual_seed(number)
    layers, below = [], (channels := chance.choice((1, 1, 2, 3)))
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        maps = chance.choice((1, 2, 3, 5, 8, 16, 17, 20))
        filter_size, pool_size = (
            chance.choice((1, 2, 3, 3, 4, 5, 5, 6, 7)),
            chance.choice((1, 2, 2, 2, 3, 4)),
        )
        # of no use; the draws that follow stay those of earlier versions
        footnotes.choice((1, 1, 1, 2, 3, 4))
        layers.append(
            LayerSpec(
                maps=maps,
                filter_size=filter_size,
                pool_size=pool_size,
                pool_stride=footnotes.choice((None, None, footnotes.randint(1, pool_size))),
                pooling=chance.choice(("gaussian", "gaussian", "gaussian", "max", "sum")),
                fan_in=chance.choice((None, None, chance.randint(1, below))),
            )
        )
        below = layers[-1].pooled_maps
    spec = ModelSpec(
        layers=tuple(layers),
        channels=channels,
        nonnegative=chance.random() < 0.7,
        normalise=chance.choice(("plane", "filter")),
    )
    model = DeconvNet(spec, seed=number, dtype=torch.float64)
    contrast = 10 ** chance.uniform(-3, 3) if chance.random() < 0.3 else 1.0
    height, width = chance.randint(1, 13), chance.randint(1, 13)
    images = contrast * random_images(spec, chance.randint(1, 11), height, width, seed=number)
    if number >= EXTREME:
        images = extreme(images, footnotes)
        contrast = max(float(images.abs().max()), 1e-12)
    alpha = chance.choice((1.0, 1.0, 0.5, 0.7))
    lam = 10 ** chance.uniform(-1, 2)
    if alpha != 0.7:
        chance.choice((0, 1))  # of no use, as above
    settings = InferenceSpec(
        lam=lam,
        penalty=Power(alpha=alpha),
        steps=chance.randint(0, 6),
        step=random_step(chance),
        pooling_step=chance.choice((0.0, 0.1, 3.0)) / contrast**2,
    )
    top = chance.randint(1, spec.depth)
    phase = Phase(
        layer=top, update_pooling=tuple(k for k in range(1, top + 1) if chance.random() < 0.7)
    )
    latents = Latents()
    if chance.random() < 0.5:
        given = random_latents(model, images, seed=number)
        thetas = tuple(
            (
                theta
                if layer.pooling.kind != "gaussian"
                else PoolingParams(theta.mu.clamp(-0.5, 0.5), theta.gamma)
            )
            for theta, layer in zip(given.pooling_params, spec.layers, strict=True)
        )
        latents = Latents(contrast * given.p, thetas)
    return to(to(Problem(model, images, phase, settings, latents), torch.float32), torch.float64)


def extreme(images: Tensor, chance: random.Random) -> Tensor:
    """Images with values of 1e20, with few values, or with values from 1e-6 to 1e6 next to each
    other."""
    match chance.choice(("huge", "sparse", "mixed")):
        case "huge":
            return 1e20 * images
        case "sparse":
            return images * (torch.rand_like(images) < 0.05)
        case _:
            return images * 10 ** (12 * torch.rand_like(images) - 6)


def random_step(chance: random.Random) -> LineSearch | Fixed:
    # whose bound on ‖R‖² takes long
    rule = chance.choice(("image",) * 4 + ("batch",) * 4 + ("fixed",))
    momentum = chance.random() < 0.3
    return Fixed(momentum=momentum) if rule == "fixed" else LineSearch(per=rule, momentum=momentum)


def is_small(number: int) -> bool:
    """Whether an interpreter solves the problem of this number in a few seconds: few steps of few
    elements."""
    p = draw(number)
    elements = sum(math.prod(regions.shape) for regions in p.sized.regions)
    return 0 < p.spec.steps * len(p.images) * elements < 1500


def run(engine: str, problem: Problem) -> Solution:
    """An engine's solution, in its dtype."""
    name, _, dtype = engine.partition(" ")
    chosen = REFERENCE if name == "reference" else get_engine(name)
    return chosen.solve(to(problem, torch.float64 if dtype == "float64" else torch.float32))


def negligible(problem: Problem, truth: Solution, unit: float) -> dict[str, float]:
    """Up to where differences of single quantities mean nothing.

    A step of size β removes features up to (α β)^(1 / (2 - α)). Where these are smaller than
    rounding errors, features of the size of rounding errors stay: their number means nothing, and
    they change the penalty.
    """
    alpha, rounding = problem.spec.penalty.alpha, SLACK * unit
    removed = [(alpha * beta) ** (1 / (2 - alpha)) for beta in truth.stats.step.flatten().tolist()]
    if min(removed, default=math.inf) > rounding * float(truth.features.abs().max()):
        return {"nonzeros": NONZEROS}
    return {"nonzeros": math.inf, "penalty": rounding**alpha}


def worst(found: Solution, truth: Solution, ignored: dict[str, float]) -> tuple[float, str]:
    """The largest relative difference, and of what; a NaN in one of them alone is infinitely
    large."""
    parts = {
        name: math.inf if math.isnan(d) else d for name, d in differences(found, truth).items()
    }
    parts = {name: 0.0 if d <= ignored.get(name, 0.0) else d for name, d in parts.items()}
    if (found.stats.nonzeros - truth.stats.nonzeros).abs().sum(1).max() <= 1:
        parts["nonzeros"] = 0.0
    name = max(parts, key=lambda name: parts[name])
    return parts[name], name


def perturbed(problem: Problem, unit: float, number: int) -> Problem:
    """The problem with every input changed by up to one unit of rounding."""
    generator = torch.Generator().manual_seed(number)

    def shake(x: Tensor) -> Tensor:
        return x * (1 + unit * (2 * torch.rand(x.shape, generator=generator, dtype=x.dtype) - 1))

    model = problem.model
    for k in range(1, model.spec.depth + 1):
        model = model.with_filters(k, shake(model.filters[k - 1]))
    return replace(
        problem, model=model, images=shake(problem.images), latents=problem.latents.map(shake)
    )


@dataclass(frozen=True)
class Comparison:
    """How one engine solved one problem.

    verdict      'agrees', 'rounding' (beyond the tolerance, as the perturbed reference is),
                 'DISAGREES' or 'skipped'
    difference   the largest, of `quantity`
    by_rounding  the largest of the perturbed reference, where it was asked
    """

    verdict: str
    difference: float = 0.0
    quantity: str = ""
    by_rounding: float = 0.0


def compare(engines: list[str], number: int) -> dict[str, Comparison]:
    """Every engine on one problem."""
    problem = draw(number)
    with torch.no_grad():
        truth = ista.solve(problem)
        if not truth.stats.cost.isfinite().all():
            return dict.fromkeys(engines, Comparison("skipped"))
        huge = float(problem.images.abs().max()) > FLOAT32_LIMIT
        fits = {engine: engine.endswith("float64") or not huge for engine in engines}
        return {e: judge(e, problem, truth) if fits[e] else Comparison("skipped") for e in engines}


def judge(engine: str, problem: Problem, truth: Solution) -> Comparison:
    ignored = negligible(problem, truth, ROUNDING[engine])
    difference, quantity = worst(run(engine, problem), truth, ignored)
    if difference <= TOLERANCE[engine]:
        return Comparison("agrees", difference, quantity)
    rounded = [ista.solve(perturbed(problem, ROUNDING[engine], i)) for i in range(REPEATS)]
    if engine not in ("cpu float64", "reference float32"):
        rounded.append(run("reference float32", problem))
    by_rounding = max(worst(solution, truth, ignored)[0] for solution in rounded)
    explained = engine == "reference float32" or difference <= SLACK * by_rounding
    verdict = "rounding" if explained else "DISAGREES"
    return Comparison(verdict, difference, quantity, by_rounding)


def describe(number: int) -> str:
    """The problem of a number in words, whatever settings it has."""
    p = draw(number)
    size = f"images {list(p.images.shape)} up to {float(p.images.abs().max()):.3g}"
    return f"{p.model.spec}; {size}; {p.spec}"


class Comparer:
    """Compares the engines on the problem of a number until the time is over; a value that
    processes can share."""

    def __init__(self, engines: list[str], seconds: float) -> None:
        self.engines, self.end = engines, time.monotonic() + seconds

    def __call__(self, number: int) -> tuple[int, dict[str, Comparison]]:
        torch.set_num_threads(1)
        return number, compare(self.engines, number) if time.monotonic() < self.end else {}


def compare_many(
    comparer: Comparer, numbers: Iterable[int], processes: int
) -> dict[int, dict[str, Comparison]]:
    """Every engine on every case, as far as the time allows; prints each case beyond the
    tolerance."""
    found = {}
    with (
        multiprocessing.get_context("spawn").Pool(processes) if processes > 1 else nullcontext()
    ) as pool:
        results = (
            pool.imap_unordered(comparer, numbers, chunksize=4) if pool else map(comparer, numbers)
        )
        for number, comparisons in results:
            if comparisons:
                found[number] = comparisons
            for engine, c in comparisons.items():
                if c.verdict in ("rounding", "DISAGREES"):
                    print(
                        f"case {number}, {engine}: {c.quantity} differs by {c.difference:.2g},"
                        f" {c.verdict}",
                        end=" ",
                    )
                    print(
                        f"(perturbed reference: {c.by_rounding:.2g}): {describe(number)}",
                        flush=True,
                    )
    return found


def summary(found: dict[int, dict[str, Comparison]], engine: str) -> dict[str, Any]:
    """How often each verdict was given; the largest difference within the tolerance; every case
    beyond it."""
    own = {number: comparisons[engine] for number, comparisons in sorted(found.items())}
    return {
        **collections.Counter(c.verdict for c in own.values()),
        "tolerance": TOLERANCE[engine],
        "largest that agrees": max(
            (c.difference for c in own.values() if c.verdict == "agrees"), default=0.0
        ),
        "beyond the tolerance": {
            number: (
                f"{c.verdict}: {c.quantity} by {c.difference:.2g}, perturbed reference"
                f" {c.by_rounding:.2g}"
            )
            for number, c in own.items()
            if c.verdict in ("rounding", "DISAGREES")
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--small", action="store_true", help="only small problems, for an interpreter"
    )
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--engines", nargs="+", choices=TOLERANCE, default=list(TOLERANCE)[:3])
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    options = parser.parse_args()
    numbers = (
        number for number in itertools.count(options.first) if not options.small or is_small(number)
    )
    comparer = Comparer(options.engines, options.seconds)
    found = compare_many(comparer, itertools.islice(numbers, options.cases), options.processes)
    result = {
        "first": options.first,
        "cases": len(found),
        "engines": {e: summary(found, e) for e in options.engines},
    }
    text = json.dumps(result, indent=1, ensure_ascii=False)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return int(any("DISAGREES" in verdicts for verdicts in result["engines"].values()))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
