"""Codes that are inferred on a GPU and written to a file: pictures a second.

    python -m benchmarks.speed.written_codes [--pictures N] [--out FILE]

Mosaics of digits, 128 × 128 and 1,008 × 1,008 pixels, with the model `mnist` and 20 plain steps:
the inference alone, and codes with and without pooling variables. `--finishing` compares how many
blocks are compressed at the same time. Wall time after a first file that is not measured.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww
from benchmarks.machine import machine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPEC = ww.InferenceSpec(steps=20)


def mosaics(count: int, side: int, border: int) -> np.ndarray:
    """Return pictures of `side` × `side` digits, within a black border."""
    rng = np.random.default_rng(0)
    digits = ww.data.load("digits")[:1000].numpy()[:, 0]
    chosen = digits[rng.integers(len(digits), size=(count, side, side))]
    pictures = chosen.transpose(0, 1, 3, 2, 4).reshape(count, 1, side * 28, side * 28)
    return np.pad(pictures, ((0, 0), (0, 0), (border, border), (border, border)))


def written(model: ww.DeconvNet, pictures: np.ndarray, where: bool, finishing: int) -> float:
    """Return how many pictures a second are inferred and written."""
    limits = replace(ww.codes.EncodeOptions().limits, finishing=finishing)
    options = ww.codes.EncodeOptions(where=where, limits=limits)
    with tempfile.TemporaryDirectory() as folder:
        ww.codes.write_codes(f"{folder}/first.npz", model, pictures[:32], SPEC, options=options)
        began = time.perf_counter()
        ww.codes.write_codes(f"{folder}/codes.npz", model, pictures, SPEC, options=options)
        return round(len(pictures) / (time.perf_counter() - began), 1)


def inferred(model: ww.DeconvNet, pictures: np.ndarray) -> float:
    """Return how many pictures a second are inferred, and stay on the device."""
    batch = max(1, (1 << 22) // pictures[0].size)
    x = torch.from_numpy(pictures[: 8 * batch]).to(DEVICE)
    ww.infer(model, x[:batch], SPEC)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for part in x.split(batch):
        ww.infer(model, part, SPEC, batch_size=batch)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return round(len(x) / (time.perf_counter() - began), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pictures", type=int, default=8000)
    parser.add_argument("--finishing", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/speed/results/written_codes.json")
    )
    given = parser.parse_args()
    model = ww.load("mnist").to(DEVICE)
    found = {"machine": machine(), "threads": os.environ.get("OMP_NUM_THREADS"), "rows": []}
    for count, side, border in ((given.pictures, 4, 8), (max(1, given.pictures // 125), 36, 0)):
        pictures = mosaics(count, side, border)
        rates = {"inferred alone": inferred(model, pictures)}
        row = {"pictures": count, "pixels": pictures.shape[-1], "a second": rates}
        found["rows"].append(row)
        for where in (False, True):
            for finishing in given.finishing:
                name = (
                    f"written {'with' if where else 'without'} where, {finishing} blocks at a time"
                )
                rates[name] = written(model, pictures, where, finishing)
                print(row, flush=True)
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
