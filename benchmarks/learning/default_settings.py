"""Trials behind the defaults for people: input stage and λ, for strokes, clothes, surfaces and
photographs.

    python -m benchmarks.learning.default_settings DATA.npz OUT.jsonl PART PARTS SECONDS

DATA.npz holds `clothes_x`, `clothes_y` (training), `clothes_xv`, `clothes_yv` (validation),
likewise `tiles` and `colour` (photographs): crops of 32 pictures, of their left half for training
and of their right half for validation; the label is the picture. Digits are the embedded training
digits. A line of OUT is the validation error of a linear SVM on the top layer, the share of the
pixels' variance that the code explains, and its features per image, for one setting.

λ is that of the demo's digits, scaled to the strength of the signal: λ ∝ strength^(α - 2) leaves
the code the same.
"""

import json
import random
import sys
import time
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from whatwhere.classification import describe_images, protocol
from whatwhere.ops.input_stage import InputStage
from whatwhere.spec import InputSpec, Power

STAGES = {
    "none": {},
    "onoff 2": {"kind": "onoff", "sigma": 2.0},
    "onoff 4": {"kind": "onoff"},
    "onoff 4, contrast 0.5": {"kind": "onoff", "contrast": 0.5},
    "onoff 4, contrast 1": {"kind": "onoff", "contrast": 1.0},
    "highpass 2": {"kind": "highpass", "sigma": 2.0},
}
SETS = ("digits", "negative", "clothes", "tiles", "photos", "colour")
VALUES = 4_000_000  # pixel values that each layer learns from


def read(file: str, name: str) -> tuple[torch.Tensor, np.ndarray, torch.Tensor, np.ndarray]:
    if name in ("digits", "negative"):
        digits = ww.data.load("digits")
        v, y = digits[:], np.asarray(digits.labels)
        v = 1 - v if name == "negative" else v
        return v[:3000], y[:3000], v[3000:], y[3000:]
    arrays = np.load(file)
    source = "colour" if name == "photos" else name
    x, y, xv, yv = (arrays[f"{source}_{part}"] for part in ("x", "y", "xv", "yv"))
    images = [torch.from_numpy(part).float() / 255 for part in (x, xv)]
    if name == "photos":
        grey = torch.tensor([0.299, 0.587, 0.114])[None, :, None, None]
        images = [(part * grey).sum(1, keepdim=True) for part in images]
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(y)))
    return images[0][order], y[order.numpy()], images[1], yv


def strength(stage: InputSpec, images: torch.Tensor) -> float:
    """The largest length of a patch of 5 × 5 of the signal, the median over images."""
    signal = InputStage(stage).forward(images)[0]
    power = F.avg_pool2d(signal.square().sum(1, keepdim=True), 5, 1) * 25
    return float(power.flatten(1).amax(1).sqrt().median())


def trial(file: str, name: str, stage: str, factor: float, alpha: float) -> dict[str, object]:
    x, y, xv, yv = read(file, name)
    spec = InputSpec(**STAGES[stage])
    ratio = strength(spec, x[:256]) / strength(InputSpec(), ww.data.load("digits")[:256])
    recipe = ww.read_recipe("demo")
    signs = {"nonnegative": False, "normalise": "filter"} if spec.kind == "highpass" else {}
    model = replace(recipe.model, input=spec, channels=x.shape[1], **signs)
    learning = tuple(
        replace(
            one,
            inference=replace(
                one.inference, penalty=Power(alpha=alpha), lam=factor * 2 * ratio ** (alpha - 2)
            ),
        )
        for one in recipe.learning
    )
    inference = replace(recipe.inference, lam=factor * 5 / ratio)
    descriptor = replace(recipe.descriptor, stride=(3, 1) if x.shape[2] < 40 else (4, 2))
    recipe = replace(
        recipe, model=model, learning=learning, inference=inference, descriptor=descriptor
    )
    start, count = time.time(), VALUES // x[0].numel()
    run = ww.train(images=x, recipe=recipe, image_count=count)
    learned = time.time() - start
    solution = ww.infer(run.model, xv[:200].to(run.model.device), recipe.inference)
    rebuilt, seen = solution.reconstruction.cpu(), xv[:200]
    explained = (
        1
        - (rebuilt - seen).square().sum() / (seen - seen.mean((2, 3), keepdim=True)).square().sum()
    )
    rows = [describe_images(run.model, part, recipe) for part in (x, xv)]
    best, _ = protocol.choose(rows[0], y, device=run.model.device)
    score = protocol.evaluate(rows[0], y, rows[1], yv, best.C, device=run.model.device)
    return {
        "set": name,
        "stage": stage,
        "factor": factor,
        "alpha": alpha,
        "error": score.error,
        "C": best.C,
        "explained": float(explained),
        "features": float((solution.features != 0).flatten(1).sum(1).float().mean()),
        "ratio": ratio,
        "seconds": learned,
        "columns": rows[0].shape[1],
    }


def main() -> None:
    file, out, part, parts, seconds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    todo = [(n, s, f, 0.5) for n in SETS for s in STAGES for f in (0.5, 1.0, 2.0)]
    todo += [(n, s, f, 1.0) for n in SETS for s in ("none", "onoff 4") for f in (0.5, 1.0, 2.0)]
    random.Random(0).shuffle(todo)
    end = time.time() + seconds
    for one in todo[part::parts]:
        if time.time() > end:
            break
        try:
            line = trial(file, *one)
        except Exception as error:  # the others go on
            line = {"trial": one, "failed": repr(error)}
        with open(out, "a") as lines:
            lines.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
