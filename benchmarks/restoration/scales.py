"""How much the mean of two scales gains, and which white noise stands for correlated noise.

    python -m benchmarks.restoration.scales measure --data DATA
    python -m benchmarks.restoration.scales table

Ten crops of each of seven sets, as in `any_picture.py`. With white noise (w) and that of photons
(p): PSNR at full size (`fine`), at half the size (`coarse`), with twice as many positions of the
grid (`q32`), and of the mean of both scales for each setting `lost`. With correlated noise (c): the
same at white noise of `white_sigma` times a factor.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww
from benchmarks.restoration.any_picture import correlated, pictures
from whatwhere.restoration.correlation import white_sigma
from whatwhere.restoration.denoiser import _value_range
from whatwhere.restoration.noise import NoiseEstimate
from whatwhere.restoration.scales import ScaleSettings, at_half_size, mix

OUT = Path(__file__).parent / "results" / "scales.jsonl"
SETS = ["photographs-grey", "bsd68", "set12", "steel", "tiles", "brick", "micrographs"]
LOST = (0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.04)
FACTORS = (0.85, 0.93, 1.0, 1.1, 1.2)
Row = dict[str, object]


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return round(10 * math.log10(255**2 / float(np.mean((a - b) ** 2))), 4)


def restored(plane: torch.Tensor, level: float, shifts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a plane restored at full and at half size, in its units."""
    denoiser = ww.restoration.load_denoiser()
    low, high = _value_range(plane, level)
    unit, sigma = (plane - low) / (high - low), level / (high - low)
    fine = denoiser.denoise(unit, sigma, shifts)
    coarse = at_half_size(
        lambda small, grid: denoiser.denoise(small, sigma / 2, 4, first=4 * grid), unit
    )
    return low + (high - low) * fine, low + (high - low) * coarse


def white_rows(x: np.ndarray, seed: int) -> Iterator[Row]:
    for kind, level in (("w", 12), ("w", 25), ("w", 50), ("p", 4), ("p", 14)):
        random = np.random.default_rng(seed)
        if kind == "w":
            noise, truth = NoiseEstimate(sigma=level), x
            noisy = x + level * random.normal(size=x.shape)
        else:
            noise, truth = NoiseEstimate(level, 1.5, 5.0), x + 5
            noisy = 5 + level * random.poisson(x / level) + 1.5 * random.normal(size=x.shape)
        stable = noise.stabilise(torch.from_numpy(noisy))
        middle = stable.mean()
        plane = (stable - middle).float()
        fine, coarse = restored(plane, 1.0, 16)

        def error(clean, noise=noise, middle=middle, truth=truth) -> float:
            return psnr(noise.restore_units(clean.double() + middle).numpy(), truth)

        row: Row = {"kind": f"{kind}{level}", "fine": error(fine), "coarse": error(coarse)}
        row["q32"] = error(restored(plane, 1.0, 32)[0])
        for lost in LOST:
            mean = mix(fine, lambda coarse=coarse: coarse, 1.0, ScaleSettings(lost=lost))
            row[f"{lost}"] = error(mean)
        yield row


def correlated_rows(x: np.ndarray, seed: int) -> Iterator[Row]:
    for sigma, width in ((8, 0.6), (25, 0.8), (15, 0.7), (12, 1.0)):
        noisy = correlated(x, np.random.default_rng(seed), sigma, width)
        plane = torch.from_numpy(noisy.astype(np.float32))
        row: Row = {"kind": f"c{sigma}_{width}"}
        for factor in FACTORS:
            level = factor * sigma * white_sigma(width)
            fine, coarse = restored(plane, level, 16)
            mean = mix(fine, lambda coarse=coarse: coarse, level)
            for name, clean in (("fine", fine), ("coarse", coarse), ("mix", mean)):
                row[f"{name}{factor}"] = psnr(np.rint(clean.numpy()).clip(0, 255), x)
        yield row


def measure(a: argparse.Namespace) -> None:
    with a.out.open("w", encoding="utf-8") as file, torch.no_grad():
        for number, (group, name, pixels) in enumerate(pictures(a.data, 10, 160, SETS)):
            x = pixels.astype(float)
            for rows in (white_rows, correlated_rows):
                for row in rows(x, number):
                    file.write(json.dumps({"set": group, "picture": name, **row}) + "\n")


def table(a: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in a.out.read_text(encoding="utf-8").splitlines()]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        part = [row for row in rows if row["kind"] == kind]
        base = "fine" if "fine" in part[0] else "fine1.0"
        gains = {
            name: round(float(np.mean([row[name] - row[base] for row in part])), 3)
            for name in part[0]
            if isinstance(part[0][name], float) and name != base
        }
        print(f"{kind} ({len(part)}): {np.mean([row[base] for row in part]):.2f} dB, {gains}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    measure(a) if a.what == "measure" else table(a)
