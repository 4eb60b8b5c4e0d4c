"""Which update suits a stream? Layer by layer on the embedded digits, at equal images seen and by
processor seconds.

    python -m reproduction.studies.streaming     # adds to results/streaming.json, in about 20
    minutes

Learned from the first 4,000 training digits at most; judged by the cost of the next 500 after 50
steps from scratch (λ = 2, α = ½). Test digits have no part in it. Updates that were tried, of which
one is in the package:

    Conjugate(steps, pull, share)   conjugate gradients on the batch with a pull ρ/2 ‖f -
                                    f_current‖², moved by a share
    Adam(rate)                      projected gradient with Adam
    Momentum(keep)                  the package's: line search along the gradient and a share of the
                                    last direction
    Both(keep, steps)               the same with further conjugate steps
    Quadratic(decay)                a running quadratic model of layer 1's filters, 400 × 400, by
                                    coordinate steps
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whatwhere import Latents, data
from whatwhere.engines import get_engine
from whatwhere.engines.reference.filter_map import FilterMap, LinearMap
from whatwhere.learning.filter_problem import project_filters
from whatwhere.model import DeconvNet, Problem
from whatwhere.ops.conjugate_gradient import conjugate_gradient
from whatwhere.spec import InferenceSpec, LineSearch, ModelSpec, Phase

RESULTS = Path(__file__).parent / "results" / "streaming.json"
ENGINE = get_engine("cpu")


def phase(layer: int) -> Phase:
    return Phase(layer=layer, update_pooling=tuple(range(1, layer + 1)))


def spec(steps: int, per: str) -> InferenceSpec:
    return InferenceSpec(lam=2.0, alpha=0.5, steps=steps, step=LineSearch(per=per))  # type: ignore[arg-type]


def connected(model: DeconvNet, k: int) -> Tensor:
    return model.connectivity[k - 1][:, :, None, None]


class Conjugate:
    def __init__(self, steps: int = 2, pull: float = 0.0, share: float = 1.0) -> None:
        self.steps, self.pull, self.share = steps, pull, share

    def __call__(
        self, model: DeconvNet, k: int, A: LinearMap, v: Tensor, latents: Latents
    ) -> DeconvNet:
        f, mask = model.filters[k - 1].double(), connected(model, k)
        scale: list[float] = []  # the pull is relative to the curvature along the gradient

        def apply(d: Tensor) -> Tensor:
            image = A.normal(d.float()).double() * mask
            scale.append(float((d * image).sum() / (d * d).sum()))
            return image + self.pull * scale[0] * d

        x = conjugate_gradient(apply, A.negative_gradient(f.float()).double() * mask, f, self.steps)
        return project_filters(model, k, f + self.share * (x - f))


class Adam:
    def __init__(self, rate: float) -> None:
        self.rate, self.t = rate, 0
        self.m: Any = 0.0
        self.s: Any = 0.0

    def __call__(
        self, model: DeconvNet, k: int, A: LinearMap, v: Tensor, latents: Latents
    ) -> DeconvNet:
        f = model.filters[k - 1]
        g, self.t = A.negative_gradient(f).double() * connected(model, k) / len(v), self.t + 1
        self.m, self.s = 0.9 * self.m + 0.1 * g, 0.99 * self.s + 0.01 * g * g
        m, s = self.m / (1 - 0.9**self.t), self.s / (1 - 0.99**self.t)
        return project_filters(model, k, f.double() + self.rate * m / (s.sqrt() + 1e-8))


class Both:
    def __init__(self, keep: float, steps: int) -> None:
        self.keep, self.steps = keep, steps
        self.last: Any = 0.0

    def __call__(
        self, model: DeconvNet, k: int, A: LinearMap, v: Tensor, latents: Latents
    ) -> DeconvNet:
        f, mask = model.filters[k - 1].double(), connected(model, k) / len(v)
        r = A.negative_gradient(f.float()).double() * mask
        d = self.last = r + self.keep * self.last
        for _ in range(self.steps):
            image = A.normal(d.float()).double() * mask
            curvature, slope = float((d * image).sum()), float((r * d).sum())
            if slope <= 0:
                break
            f, r = f + slope / curvature * d, r - slope / curvature * image
            d = r - float((r * image).sum()) / curvature * d
        return project_filters(model, k, f)


class Momentum(Both):
    def __init__(self, keep: float) -> None:
        super().__init__(keep, 1)


class Quadratic:
    def __init__(self, decay: float, passes: int = 3) -> None:
        self.decay, self.passes = decay, passes
        self.H: Any = 0.0
        self.b: Any = 0.0

    def __call__(
        self, model: DeconvNet, k: int, A: LinearMap, v: Tensor, latents: Latents
    ) -> DeconvNet:
        f, z = model.filters[0], FilterMap(Problem(model, v, phase(1), latents=latents), 1).z
        B, K = f.shape[1], f.shape[3]
        shifted = (
            z.unfold(2, v.shape[2], 1).unfold(3, v.shape[3], 1).permute(1, 2, 3, 0, 4, 5).flip(1, 2)
        )
        # of A: z of a map, shifted by an element of the filter
        columns = shifted.reshape(B * K * K, -1)
        self.H = self.decay * self.H + (columns @ columns.T).double()
        self.b = self.decay * self.b + (columns @ v.reshape(-1)).double()
        x = f.double().reshape(B, K * K).clone()
        for _ in range(self.passes):
            for m in range(B):
                rows = slice(m * K * K, (m + 1) * K * K)
                bound = torch.linalg.matrix_norm(self.H[rows, rows], 2)
                if bound > 0:
                    moved = (
                        x[m] + (self.b[rows] - self.H[rows] @ x.reshape(-1)) / bound
                    ).clamp_min(0)
                    x[m] = moved / moved.norm() if moved.norm() > 0 else x[m]
        return project_filters(model, 1, x.view_as(f))


# name, layer, update, images, steps, batch size, step size
TRIALS: list[tuple[str, int, Any, int, int, int, str]] = [
    ("crude: replaced by the batch's", 1, lambda: Conjugate(2), 4000, 10, 500, "batch"),
    ("crude", 1, lambda: Conjugate(2), 4000, 10, 100, "batch"),
    ("half of the way", 1, lambda: Conjugate(2, share=0.5), 4000, 10, 100, "batch"),
    ("pull 0.3, 3 steps", 1, lambda: Conjugate(3, 0.3), 4000, 10, 100, "batch"),
    ("pull 0.3, 6 steps", 1, lambda: Conjugate(6, 0.3), 4000, 10, 100, "batch"),
    ("pull 1, 6 steps", 1, lambda: Conjugate(6, 1.0), 4000, 10, 100, "batch"),
    ("Adam 0.01", 1, lambda: Adam(0.01), 4000, 10, 100, "batch"),
    ("Adam 0.03", 1, lambda: Adam(0.03), 4000, 10, 100, "batch"),
    ("quadratic, decay 0.9", 1, lambda: Quadratic(0.9), 4000, 10, 100, "batch"),
    ("momentum 0.8", 1, lambda: Momentum(0.8), 4000, 10, 100, "batch"),
    ("pull 0.3, 3 steps", 1, lambda: Conjugate(3, 0.3), 4000, 5, 100, "batch"),
    ("pull 0.3, 3 steps", 1, lambda: Conjugate(3, 0.3), 4000, 20, 100, "batch"),
    ("pull 0.3, 3 steps", 1, lambda: Conjugate(3, 0.3), 1000, 40, 50, "batch"),
    ("Adam 0.03", 1, lambda: Adam(0.03), 1000, 40, 50, "batch"),
    ("momentum 0.8", 1, lambda: Momentum(0.8), 1000, 40, 50, "batch"),
    ("momentum 0.8, 2 steps", 1, lambda: Both(0.8, 2), 1000, 40, 50, "image"),
    ("momentum 0.8", 1, lambda: Momentum(0.8), 1000, 40, 50, "image"),
    ("momentum 0", 1, lambda: Momentum(0.0), 1000, 40, 50, "image"),
    ("momentum 0.5", 1, lambda: Momentum(0.5), 1000, 40, 50, "image"),
    ("pull 0.3, 3 steps", 2, lambda: Conjugate(3, 0.3), 1000, 20, 50, "batch"),
    ("momentum 0.8", 2, lambda: Momentum(0.8), 1000, 20, 50, "batch"),
    ("pull 0.3, 3 steps", 2, lambda: Conjugate(3, 0.3), 1000, 20, 50, "image"),
    ("momentum 0.8, 2 steps", 2, lambda: Both(0.8, 2), 1000, 20, 50, "image"),
    ("momentum 0.5", 2, lambda: Momentum(0.5), 1000, 20, 50, "image"),
    ("momentum 0.5", 2, lambda: Momentum(0.5), 2000, 20, 50, "image"),
]


def judge(model: DeconvNet, k: int, held_out: Tensor) -> dict[str, float]:
    solution = ENGINE.solve(Problem(model, held_out, phase(k), spec(50, "batch")))
    used = (solution.features != 0).flatten(2).any(2).float().mean(0)
    return {
        "cost": float(solution.stats.cost[-1].mean()),
        "nonzeros": float(solution.stats.nonzeros[-1].float().mean()),
        "rare_maps": int((used < 0.01).sum()),
    }


def main() -> None:
    digits = data.load("digits")[slice(0, 4500)]
    rows, below = [], DeconvNet(ModelSpec.paper(), seed=0)
    for name, k, make, images, steps, batch, per in TRIALS:
        model, update, start = below, make(), time.process_time()
        for first in range(0, images, batch):
            v = digits[first : first + batch]
            solution = ENGINE.solve(Problem(model, v, phase(k), spec(steps, per)))
            model = update(
                model,
                k,
                ENGINE.filter_map(Problem(model, v, phase(k), latents=solution.latents), k),
                v,
                solution.latents,
            )
        seconds = time.process_time() - start
        about = {
            "name": name,
            "layer": k,
            "images": images,
            "steps": steps,
            "batch": batch,
            "step_size": per,
        }
        rows.append(
            {**about, "processor_seconds": round(seconds, 2), **judge(model, k, digits[4000:])}
        )
        print(json.dumps(rows[-1]), flush=True)
        RESULTS.write_text(
            json.dumps({**json.loads(RESULTS.read_text()), "updates": rows}, indent=1) + "\n"
        )
        if (name, k) == ("momentum 0.5", 1):
            below = model  # layer 2 learns on these


if __name__ == "__main__":
    main()
