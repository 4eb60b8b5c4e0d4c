"""Convolutional sparse coding to any accuracy: steps and Newton steps against SPORCO's ADMM.

    python -m benchmarks.speed.sporco_accuracy [--side 64] [--lmbda 0.05] [--out FILE]

Signed codes of a real picture (scikit-image's camera, a crop without its low frequencies) with
SPORCO's dictionary of 36 filters of 12 × 12; float32, one thread, processor seconds. The picture
has a frame of zeros, beyond which no useful code reaches, so that both have the same minimum. Every
code is evaluated by `Problem.objective` in float64; SPORCO's automatic ρ starts at 10 and 50 / λ.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import skimage.data
import torch
from scipy.ndimage import gaussian_filter
from sporco import util
from sporco.admm import cbpdn
from torch import Tensor

from benchmarks.machine import machine
from whatwhere.engines import active_set, resolve
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.gap import relative_gap
from whatwhere.spec import InferenceSpec, LayerSpec, ModelSpec, Phase, Sum

SIZE = 12
Row = dict[str, float | str]


def picture(side: int) -> np.ndarray:
    """Return a crop of the camera man without its low frequencies, in a frame of zeros."""
    whole = skimage.data.camera().astype(np.float64) / 255
    crop = whole[100 : 100 + side, 160 : 160 + side]
    return np.pad(crop - gaussian_filter(crop, 6), SIZE - 1)


def dictionary() -> np.ndarray:
    """Return SPORCO's filters, of unit length, [12, 12, 36]."""
    filters = util.convdicts()["G:12x12x36"].astype(np.float64)
    return filters / np.sqrt((filters**2).sum((0, 1)))


def problem_of(image: np.ndarray, filters: np.ndarray, lam: float) -> Problem:
    layer = LayerSpec(maps=36, filter_size=SIZE, pool_size=1, pooling=Sum())
    spec = ModelSpec(layers=(layer,), nonnegative=False)
    f = torch.from_numpy(filters.transpose(2, 0, 1)[None].copy())
    drawn = DeconvNet(spec, seed=0, dtype=torch.float64)
    model = DeconvNet.from_parts(spec, [f], drawn.connectivity)
    return Problem(
        model, torch.from_numpy(image)[None, None], Phase(layer=1), InferenceSpec(lam=lam)
    )


def ours(exact: Problem, steps: int) -> list[Row]:
    """Return the cost after steps, and after the Newton steps that follow."""
    spec = InferenceSpec.coding(lam=exact.lam, steps=steps, tolerance=0.0)
    single = Problem(exact.model.to(torch.float32), exact.images.float(), exact.phase, spec)
    engine = resolve("cpu", single)
    engine.solve(replace(single, spec=replace(spec, steps=1)))  # compile
    began = time.process_time()
    latents = engine.solve(single).latents
    first = time.process_time() - began
    gap = float(relative_gap(single, latents))
    rows = [row(f"whatwhere, {steps} steps", first, exact, latents) | {"gap": gap}]
    began = time.process_time()
    finished = active_set.finish(single, latents, 1e-8)
    seconds = first + time.process_time() - began
    return [*rows, row(f"whatwhere, {steps} steps and Newton steps", seconds, exact, finished)]


def theirs(exact: Problem, image: np.ndarray, filters: np.ndarray, start: float) -> list[Row]:
    """Return the cost after every 50 iterations of ADMM."""
    lmbda = 1 / exact.lam
    options = {
        "MaxMainIter": 50,
        "RelStopTol": 1e-12,
        "DataType": np.float32,
        "rho": start * lmbda,
        "AutoRho": {"Enabled": True},
        "HighMemSolve": True,
    }
    solver = cbpdn.ConvBPDN(
        filters.astype(np.float32),
        image.astype(np.float32),
        lmbda,
        cbpdn.ConvBPDN.Options(options),
        dimK=0,
    )
    rows, seconds = [], 0.0
    side = image.shape[0] + SIZE - 1
    where = active_set_where(exact)
    for block in range(1, 10):
        began = time.process_time()
        solver.solve()
        seconds += time.process_time() - began
        p = np.zeros((1, 36, side, side))
        p[0, :, SIZE - 1 :, SIZE - 1 :] = solver.Y.squeeze().transpose(2, 0, 1)
        latents = replace(where, p=torch.from_numpy(p))
        name = f"SPORCO ADMM, automatic ρ from {start:g}/λ, {50 * block} iterations"
        rows.append(row(name, seconds, exact, latents))
    return rows


def active_set_where(exact: Problem) -> Latents:
    """Return the pooling variables of regions of one element, and no features."""
    once = replace(exact, spec=replace(exact.spec, steps=1))
    return resolve("reference", once).solve(once).latents


def row(method: str, seconds: float, exact: Problem, latents: Latents) -> Row:
    wide = latents.map(Tensor.double)
    cost = float(exact.objective(wide).cost)
    return {"method": method, "seconds": round(seconds, 3), "cost": cost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--lmbda", type=float, default=0.05, help="SPORCO's λ; ours is its inverse")
    parser.add_argument("--steps", type=int, nargs="+", default=[400, 800])
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/speed/results/sporco_accuracy.json")
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    image, filters = picture(given.side), dictionary()
    exact = problem_of(image, filters, 1 / given.lmbda)
    rows: list[Row] = []
    for steps in given.steps:
        rows += ours(exact, steps)
    for start in (10, 50):
        rows += theirs(exact, image, filters, start)
    lowest = min(float(each["cost"]) for each in rows)
    for each in rows:
        each["above the lowest"] = float(each["cost"]) / lowest - 1
        print(f"{each['method']:60s} {each['seconds']:8} s  {each['above the lowest']:.1e}")
    found = {"machine": machine(), "side": given.side, "lmbda": given.lmbda, "rows": rows}
    given.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
