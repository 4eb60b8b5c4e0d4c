"""Whether a change kept every bit of the reference:  python tests/engines/reference_bits.py BEFORE
AFTER

BEFORE and AFTER are checkouts of the repository, or files that `--save FILE` wrote for one. Each
solves its own agreement cases (`agreement.AGREEMENTS`, and every small model of `examples.SPECS` by
every rule of the step), in float32 and float64, with one thread: latents, statistics, gradients of
the filters, and the gradients that back-propagation finds for learned steps. What differs by a
single bit is listed, and the program fails.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def first_module(*names: str) -> Any:
    """The first of these modules that exists: an earlier version has others."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(names)


def digest(tensors: list[Any]) -> str:
    """What tells results apart: their dtypes, shapes and bytes."""
    import torch

    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        # adding 0 makes 0 of -0, which no result depends on
        flat = (tensor.detach() + 0).contiguous().flatten()
        total.update(flat.view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def rules() -> dict[str, Any]:
    """Every rule of the step, by name."""
    from whatwhere.spec import Fixed, LineSearch, Schedule, StepSpec

    sizes = [StepSpec(size=0.02, threshold=0.03, extrapolation=0.2, pooling_step=(0.5, 0.3))] * 4
    return {
        "image": LineSearch(),
        "batch": LineSearch(per="batch"),
        "image, momentum": LineSearch(momentum=True),
        "fixed": Fixed(),
        "fixed, momentum": Fixed(momentum=True),
        "schedule": Schedule(steps=sizes, contrast=0.8, mu_scale=(0.9,), gamma_scale=(1.1,)),
    }


def solved(problem: Any) -> list[Any]:
    """All that the reference computes for a problem."""
    from whatwhere.engines import REFERENCE  # an earlier version has it elsewhere

    solution = REFERENCE.solve(problem)
    stats = solution.stats
    return [
        *solution.latents.tensors(),
        *(stats.reconstruction, stats.penalty, stats.nonzeros, stats.step),
    ]


def measure() -> dict[str, str]:
    """The digest of every case, with the tree that is imported."""
    import torch

    import whatwhere as ww
    from agreement import AGREEMENTS
    from examples import SPECS, filter_problem, random_images, random_latents, random_mask
    from whatwhere.latents import Latents
    from whatwhere.model import DeconvNet, Problem
    from whatwhere.spec import InferenceSpec, Phase

    torch.set_num_threads(1)
    engines = first_module("whatwhere.engines", "whatwhere.inference.engines")
    sys.modules.setdefault("whatwhere.engines", engines)
    targets = first_module("whatwhere.inference.target", "whatwhere.inference.checks")
    found: dict[str, str] = {}

    def problems(case: Any, dtype: Any, spec: Any) -> Any:
        model = DeconvNet(case.model, seed=0, dtype=torch.float64)
        images = random_images(case.model, case.images, case.height, case.width)
        target = targets.make_target(model, images, random_mask(images, case.mask))
        latents = Latents() if case.fresh else random_latents(model, target.v)
        layer = case.layer or case.model.depth
        moving = tuple(k for k in range(1, layer + 1) if k not in case.still)
        mask = None if target.mask is None else target.mask.to(dtype)
        phase = Phase(layer=layer, update_pooling=moving)
        low = model.to(dtype)
        return Problem(low, target.v.to(dtype), phase, spec, latents.to(dtype), mask)

    for dtype in (torch.float32, torch.float64):
        for name, case in AGREEMENTS.items():
            spec = InferenceSpec(**{"lam": 2.0, "steps": 4, "pooling_step": 0.1, **case.spec})
            found[f"{name}, {dtype}"] = digest(solved(problems(case, dtype, spec)))
        for name, model_spec in SPECS.items():
            model = DeconvNet(model_spec, seed=0, dtype=dtype)
            v = random_images(model_spec).to(dtype)
            depth = model_spec.depth
            phase = Phase(layer=depth, update_pooling=tuple(range(1, depth + 1)))
            for rule, step in rules().items():
                for alpha in (0.5, 0.7, 1.0):
                    spec = InferenceSpec(lam=2.0, steps=4, step=step, penalty=ww.Power(alpha=alpha))
                    result = solved(Problem(model, v, phase, spec))
                    found[f"{name}, {rule}, {alpha}, {dtype}"] = digest(result)
            latents = random_latents(model, v)
            for k in range(1, depth + 1):
                problem = filter_problem(model, v, latents)
                gradient = engines.REFERENCE.filter_map(problem, k).negative_gradient(
                    model.filters[k - 1]
                )
                found[f"{name}, filters {k}, {dtype}"] = digest([gradient])
            unrolled = ww.UnrolledInference(model, steps=2, untied=True)
            latents, end = unrolled.unroll(v)
            end.cost.sum().backward()
            gradients = [p.grad for p in unrolled.parameters() if p.grad is not None]
            result = [*latents.tensors(), end.cost, *gradients]
            found[f"{name}, unrolled, {dtype}"] = digest(result)
    digits = ww.data.load("digits", split="test")[:3]
    mnist = ww.load("mnist")
    for name, spec in {
        "auto λ": InferenceSpec(lam=ww.AutoLam(relative=2.0), steps=3),
        "auto λ, α ½": InferenceSpec(
            lam=ww.AutoLam(relative=2.0), steps=3, penalty=ww.Power(alpha=0.5)
        ),
        "auto λ, share": InferenceSpec(lam=ww.AutoLam(share=0.1), steps=3),
        "coding": InferenceSpec.coding(steps=120),
    }.items():
        solution = ww.infer(mnist, digits, spec, engine="reference")
        found[f"mnist, {name}"] = digest([*solution.latents.tensors(), solution.stats.cost])
    return found


def of(source: str) -> dict[str, str]:
    """The digests of a checkout, or of a file that holds them."""
    path = Path(source).resolve()
    if path.is_file():
        return dict(json.loads(path.read_text()))
    places = [path / "src", path / "tests", path / "tests" / "engines"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", help="BEFORE and AFTER, or one with --save")
    parser.add_argument("--save", help="write the digests of the only tree to this file")
    given = parser.parse_args()
    if not given.trees:
        print(json.dumps(measure()))
        return
    results = [of(tree) for tree in given.trees]
    if given.save:
        Path(given.save).write_text(json.dumps(results[0], indent=0))
        return
    before, after = results
    differing = sorted(name for name in before | after if before.get(name) != after.get(name))
    print(f"{len(before)} cases before, {len(after)} after, {len(differing)} differ")
    for name in differing:
        print(" ", name)
    raise SystemExit(bool(differing))


if __name__ == "__main__":
    main()
