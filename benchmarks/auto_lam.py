"""How λ should follow the noise: denoising crops of photographs at many λ:  python benchmarks/auto_lam.py

Three small models are learned from tiles of china and of the left half of flower (scikit-learn's pictures). Crops with
white noise are reconstructed with 1/λ = k · gain · σ for several k. For every crop the best k and r = (σ/s)², the share
of the noise in the signal's mean square, are written to benchmarks/results/auto_lam.json, with what rules for k lose
against the best k of each crop, in decibels.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_image
from torch import Tensor

from whatwhere import DeconvNet, InferenceSpec, LayerSpec, LearningSpec, ModelSpec, Recipe, infer, train
from whatwhere.inference import machine
from whatwhere.inference.auto_lam import gain
from whatwhere.inference.target import make_target
from whatwhere.spec import EveryEpoch, InputSpec, LineSearch, PoolingKind

RESULTS = Path(__file__).parent / "results" / "auto_lam.json"
FACTORS = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6)
NOISE = (0.02, 0.05, 0.1, 0.2)
TILE, CROP = 32, 56
RANDOM = torch.Generator().manual_seed(1)


def grey(name: str) -> Tensor:
    return torch.tensor(load_sample_image(f"{name}.jpg")).float().mean(2) / 255


def tiles(picture: Tensor, count: int) -> Tensor:
    corners = [torch.randint(0, side - TILE, (count,), generator=RANDOM).tolist() for side in picture.shape]
    return torch.stack([picture[y : y + TILE, x : x + TILE] for y, x in zip(*corners, strict=True)])[:, None]


def learn(images: Tensor, maps: int, size: int, kind: PoolingKind, pool: int) -> DeconvNet:
    layer = LayerSpec(maps=maps, filter_size=size, pooling_kind=kind, pool_size=pool)
    inference = InferenceSpec(lam=20.0, steps=15, step=LineSearch(momentum=True))
    recipe = Recipe(
        model=ModelSpec(layers=(layer,), nonnegative=False, input=InputSpec(kind="highpass")),
        learning=(LearningSpec(inference=inference, epochs=5, update=EveryEpoch(reset_at=())),),
        batch_size=50,
    )
    return train(recipe, images).model


def decibels(images: Tensor, truth: Tensor) -> Tensor:
    return -10 * (images - truth).square().mean((1, 2, 3)).log10()


def denoise(model: DeconvNet, clean: Tensor, sigma: float) -> list[dict[str, Any]]:
    """The quality of every crop at every factor k."""
    noisy = clean + sigma * torch.randn(clean.shape, generator=RANDOM)
    target, spec = make_target(model, noisy), InferenceSpec(steps=60, step=LineSearch(momentum=True))
    unit = sigma * gain(model, target, 1, spec)
    quality = torch.stack(
        [decibels(infer(model, noisy, replace(spec, lam=1 / (k * unit))).reconstruction, clean) for k in FACTORS], 1
    )
    share = sigma**2 / target.v.square().mean((1, 2, 3))
    return [
        {"sigma": sigma, "r": round(float(r), 4), "decibels": [round(q, 2) for q in row.tolist()]}
        for r, row in zip(share, quality, strict=True)
    ]


def loss(rows: list[dict[str, Any]], rule: Callable[[float], float]) -> float:
    """What a rule for k loses against the best k of each crop, on average."""
    lost = []
    for row in rows:
        k = np.clip(rule(min(row["r"], 1.0)), FACTORS[0], FACTORS[-1])
        lost.append(max(row["decibels"]) - np.interp(np.log(k), np.log(FACTORS), row["decibels"]))
    return round(float(np.mean(lost)), 2)


def main() -> None:
    china, flower = grey("china"), grey("flower")
    images = torch.cat([tiles(china, 150), tiles(flower[:, :300], 50)])
    models = {
        "24 filters of 6×6, no pooling": learn(images, 24, 6, "sum", 1),
        "32 filters of 8×8, 2×2 Gaussians": learn(images, 32, 8, "gaussian", 2),
        "16 filters of 5×5, 2×2 Gaussians": learn(images, 16, 5, "gaussian", 2),
    }
    places = [(flower, 150, 350), (china, 200, 300), (china, 60, 60), (flower, 300, 500)]
    clean = torch.stack([picture[y : y + CROP, x : x + CROP] for picture, y, x in places])[:, None]
    rows = []
    for name, model in models.items():
        for sigma in NOISE:
            rows += [{"model": name, "crop": i, **row} for i, row in enumerate(denoise(model, clean, sigma))]
            print(*rows[-len(clean) :], sep="\n", flush=True)
    losses = {
        f"k = {c:g} · r^{a:g}": loss(rows, lambda r, a=a, c=c: c * r**a)
        for a in (0.0, 0.25, 0.5)
        for c in (2.0, 3.0, 4.0, 5.0)
    }
    print(losses)
    content = {"machine": machine(), "factors": FACTORS, "lost_decibels": losses, "crops": rows}
    RESULTS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
