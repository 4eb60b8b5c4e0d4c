"""Eqns. 19 and 20 as the paper prints them, so that one can watch the cost go uphill.

    python -m reproduction.studies.printed_gradient [--images 10] [--steps 20]

Test digits are inferred by the shipped model `mnist`. Then the features stay fixed, and the pooling
variables of both layers take gradient steps: once along the derivative of w = √a / √Σa, once along
the printed one. The mean cost of an image after every step is printed and written to
results/printed_gradient.json, with the share of the images whose first step points uphill.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import mul
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.model import Problem
from whatwhere.model.sized import SizedModel
from whatwhere.ops.pooling import Weights, bound, gather
from whatwhere.spec.recipe import joint

RESULT = Path(__file__).parent / "results" / "printed_gradient.json"
Gradient = Callable[[Weights, Tensor, Tensor, ww.PoolingParams], ww.PoolingParams]
"""From weights, the error at z, the features p̂ and θ of a layer: ∂/∂μ and ∂/∂γ."""


def derived(w: Weights, error: Tensor, p_hat: Tensor, theta: ww.PoolingParams) -> ww.PoolingParams:
    """The derivative of w = √a / √Σa, as inference uses it."""
    return w.gradient(error, p_hat, theta)


def printed(w: Weights, error: Tensor, p_hat: Tensor, theta: ww.PoolingParams) -> ww.PoolingParams:
    """Eqn. 17 with Eqns. 19 and 20 as printed:

    ∂w(i')/∂a(i) = w(i) / Σa for i ≠ i',   ∂w(i')/∂a(i') = (1 - w(i')) / Σa
    """
    regions = w.regions

    def spread(x: Tensor) -> Tensor:
        return x[:, :, None, None, None]

    elements = gather(error, regions)
    weights = reduce(mul, w.factors, torch.ones_like(elements))
    offsets = [
        regions.coordinates(axis, spread(theta.mu[:, a])) - spread(theta.mu[:, a])
        for a, axis in enumerate(regions.axes)
    ]
    precisions = [spread(theta.gamma[:, a]) for a in range(len(regions.axes))]
    exponents = [g / 2 * x.square() for g, x in zip(precisions, offsets, strict=True)]
    a = torch.exp(-reduce(torch.add, exponents)) * torch.ones_like(elements)
    inside = (2, 3, 4)

    def along(da: Tensor) -> Tensor:
        """Σ_{i'} ∂C/∂w(i') Σ_i ∂w(i')/∂a(i) ∂a(i)/∂θ."""
        others = (weights * da).sum(inside, keepdim=True) - weights * da
        slope = (others + (1 - weights) * da) / a.sum(inside, keepdim=True)
        return p_hat * (elements * slope).sum(inside)

    mu = [along(g * x * a) for g, x in zip(precisions, offsets, strict=True)]
    gamma = [along(-x.square() / 2 * a) for x in offsets]
    return ww.PoolingParams(torch.stack(mu, 1), torch.stack(gamma, 1))


GRADIENTS: dict[str, Gradient] = {"derived": derived, "as printed": printed}


def gradients(
    sized: SizedModel, v: Tensor, p: Tensor, thetas: tuple[ww.PoolingParams, ...], rule: Gradient
) -> list[ww.PoolingParams]:
    """∇θ of every layer."""
    weights = sized.weights(thetas)
    p_hat = sized.descend(p, weights)
    _, errors = sized.ascend(p_hat[0] - v, weights)
    return [rule(weights[k], errors[k], p_hat[k + 1], theta) for k, theta in enumerate(thetas)]


def descend(problem: Problem, latents: ww.Latents, rule: Gradient, steps: int) -> Tensor:
    """The cost of each image before every step of θ and after the last, [steps + 1, N]."""
    thetas = latents.pooling_params
    costs = [problem.objective(latents).cost]
    size = problem.lam * problem.spec.pooling_step
    for _ in range(steps):
        found = gradients(problem.sized, problem.images, latents.features, thetas, rule)
        thetas = tuple(
            bound(
                ww.PoolingParams(theta.mu - size * d.mu, theta.gamma - size * d.gamma),
                regions,
                problem.spec.moments,
            )
            for theta, d, regions in zip(thetas, found, problem.sized.regions, strict=True)
        )
        costs.append(problem.objective(replace(latents, pooling_params=thetas)).cost)
    return torch.stack(costs)


def uphill(problem: Problem, latents: ww.Latents) -> Tensor:
    """Whether the printed gradient of each image points uphill: away from the derivative, [N]."""
    both = [
        gradients(problem.sized, problem.images, latents.features, latents.pooling_params, rule)
        for rule in GRADIENTS.values()
    ]
    products = [
        (one * other).flatten(1).sum(1)
        for pair in zip(*both, strict=True)
        for one, other in zip(*pair, strict=True)
    ]
    return torch.stack(products).sum(0) < 0


def measure(images: int, steps: int) -> dict[str, Any]:
    """The mean cost after every step, by the rule, and the share of images that begin uphill.

    The pooling variables begin as they were fitted, so that there is something to gain: the
    features are those after 50 steps, in which θ stayed.
    """
    model = ww.load("mnist")
    v = ww.data.load("digits", split="test")[:images]
    spec = ww.InferenceSpec()
    fixed = (ww.Phase(layer=model.spec.depth),)
    latents = ww.infer(model, v, spec, fixed, engine="reference").latents
    problem = Problem(model, v, joint(model.spec.depth)[0], spec)
    return {
        "images": images,
        "step": spec.pooling_step,
        "cost": {
            name: descend(problem, latents, rule, steps).mean(1).tolist()
            for name, rule in GRADIENTS.items()
        },
        "images that begin uphill, %": 100 * float(uphill(problem, latents).float().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    with torch.no_grad():
        result = measure(given.images, given.steps)
    names = list(result["cost"])
    print("step", *names, sep="\t")
    for step, costs in enumerate(zip(*result["cost"].values(), strict=True)):
        print(step, *(f"{cost:.2f}" for cost in costs), sep="\t")
    print(f"{result['images that begin uphill, %']:.0f} % of the images begin uphill")
    RESULT.write_text(json.dumps(result) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
