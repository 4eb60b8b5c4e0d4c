"""How far inference moves the centre μ and the precision γ of the Gaussians in 2 × 2 regions.

    python -m reproduction.studies.pooling_moves

50 test digits, the shipped model `mnist`, 200 steps with the settings of training. For every layer:
the mean change of μ and of log γ from the moment fit to the end, over all regions with a feature;
and the cost if μ or γ of all layers is put back to its start.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

import whatwhere as ww

RESULT = Path(__file__).parent / "results" / "pooling_moves.json"
IMAGES = 50
STEPS = 200


def measure(images: int = IMAGES, steps: int = STEPS) -> dict:
    """The changes in every layer, and the mean cost with parts of the Gaussians put back."""
    run = ww.read_run("mnist")
    spec = replace(run.recipe.learning[-1].inference, steps=steps, step=ww.LineSearch())
    v = ww.data.load("digits", split="test")[:images]
    start = ww.infer(run.model, v, replace(spec, steps=0), engine="reference").latents
    end = ww.infer(run.model, v, spec, engine="reference").latents
    sized = run.model.at(*v.shape[2:])
    weights = sized.weights(end.pooling_params)
    layers = []
    for k, (before, after) in enumerate(
        zip(start.pooling_params, end.pooling_params, strict=True), start=1
    ):
        used = sized.reconstruct(end.features, weights, to=k) != 0
        layers.append(
            {
                "layer": k,
                "regions": int(used.sum()),
                "change of mu": mean_change(before.mu, after.mu, used),
                "change of log gamma": mean_change(before.gamma.log(), after.gamma.log(), used),
            }
        )
    costs = {
        "as inferred": cost(run.model, v, spec, end, end.pooling_params),
        "mu put back": cost(run.model, v, spec, end, mixed(start, end)),
        "gamma put back": cost(run.model, v, spec, end, mixed(end, start)),
    }
    return {"images": images, "steps": steps, "layers": layers, "cost": costs}


def mean_change(before: Tensor, after: Tensor, used: Tensor) -> float:
    """The mean of |after - before| over both axes of the regions that are used."""
    change = (after - before).abs().mean(1)
    return float(change[used].mean())


def mixed(mu: ww.Latents, gamma: ww.Latents) -> tuple[ww.PoolingParams, ...]:
    """The centres of the first latents with the precisions of the second."""
    pairs = zip(mu.pooling_params, gamma.pooling_params, strict=True)
    return tuple(ww.PoolingParams(one.mu, other.gamma) for one, other in pairs)


def cost(
    model: ww.DeconvNet,
    v: Tensor,
    spec: ww.InferenceSpec,
    latents: ww.Latents,
    theta: tuple[ww.PoolingParams, ...],
) -> float:
    """The mean cost of an image with these pooling variables and the features of the latents."""
    sized = model.at(*v.shape[2:])
    v_hat = sized.reconstruct(latents.features, sized.weights(theta))
    error = spec.lam / 2 * (v_hat - v).square().sum()
    penalty = latents.features.abs().pow(spec.penalty.alpha).sum()
    return float((error + penalty) / len(v))


def main() -> None:
    with torch.no_grad():
        result = measure()
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
