"""Is a result ever worse than its input? A hundred random crops at eight noise levels, the noise
given and estimated.

    python -m benchmarks.restoration.denoising_crops cbsd432.tar --out crops.json

Crops of 16 to 96 pixels of the photographs that `benchmarks/restoration/denoiser.py` keeps for
validation; σ from 2 to 75 of 255.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww
from benchmarks.restoration.denoiser import DEVICE, HELD_OUT, read

LEVELS = np.geomspace(2, 75, 8).round(1).tolist()


def crop_rows(
    crop: torch.Tensor, seed: int, denoiser: ww.restoration.Denoiser
) -> list[dict[str, object]]:
    """The squared error of the result, in units of that of the input, at every level."""
    clean = crop[None, None].float() / 255
    rows = []
    for sigma in LEVELS:
        noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed))
        noisy = clean + sigma / 255 * noise
        before = (noisy - clean).square().mean()
        ratios = {
            name: round(
                float(
                    (ww.restoration.denoise(noisy, denoiser, level) - clean).square().mean()
                    / before
                ),
                4,
            )
            for name, level in (("given", sigma / 255), ("estimated", None))
        }
        rows.append({"crop": seed, "shape": list(crop.shape), "sigma": sigma, **ratios})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--crops", type=int, default=100)
    a = parser.parse_args()
    pictures, random = list(read(a.archive).values())[::HELD_OUT], np.random.default_rng(0)
    denoiser, rows = ww.restoration.load_denoiser().to(DEVICE), []
    for seed in range(a.crops):
        picture, sides = pictures[random.integers(len(pictures))], random.integers(16, 97, 2)
        top, left = (
            random.integers(extent - side + 1)
            for extent, side in zip(picture.shape, sides, strict=True)
        )
        rows += crop_rows(picture[top : top + sides[0], left : left + sides[1]], seed, denoiser)
    worst = {name: max(row[name] for row in rows) for name in ("given", "estimated")}  # type: ignore[type-var]
    result = {
        "what": "denoising_crops.py: squared error in units of the input's",
        "worst": worst,
        "rows": rows,
    }
    a.out.write_text(json.dumps(result) + "\n")
    print(worst)


if __name__ == "__main__":
    main()
