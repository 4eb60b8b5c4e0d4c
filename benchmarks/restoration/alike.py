"""Does an estimate from pictures that were taken alike help?

    python -m benchmarks.restoration.alike measure --data cbsd432.tar
    python -m benchmarks.restoration.alike table

Eight grey crops of photographs that the denoiser did not learn from, with white noise or that of
photons, are restored with the noise known, estimated from each, and estimated from all of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww
from benchmarks.restoration.denoiser import held_out, psnr, read

OUT = Path(__file__).parent / "results" / "alike.jsonl"
NOISES = {"white": [(0.0, 0.04), (0.0, 0.1)], "photons": [(0.005, 0.01), (0.02, 0.0)]}


def measure(a: argparse.Namespace) -> None:
    """Write a line for every side, noise and crop."""
    pictures = list(read(a.data).values())
    with a.out.open("w", encoding="utf-8") as file:
        for side in (48, 64, 96, 128):
            for kind, levels in NOISES.items():
                for gain, sigma in levels:
                    random = torch.Generator().manual_seed(side)
                    truths, given = [], []
                    for number in held_out(len(pictures))[:8]:
                        x = pictures[number][100 : 100 + side, 100 : 100 + side].float() / 255
                        noise = sigma * torch.randn(x.shape, generator=random)
                        counts = gain * torch.poisson(x / gain, generator=random) if gain else x
                        truths.append(x)
                        given.append((counts + noise)[None])
                    of_all = ww.restoration.estimate_noise(given)
                    known = ww.restoration.NoiseEstimate(gain, sigma)
                    for number, (x, y) in enumerate(zip(truths, given, strict=True)):
                        own = ww.restoration.estimate_noise(y)
                        middle = float(x.mean())
                        row = {"side": side, "kind": kind, "gain": gain, "sigma": sigma}
                        row |= {"picture": number, "noisy": round(psnr(y[0], x), 3)}
                        for name, noise in (("known", known), ("own", own), ("all", of_all)):
                            ratio = noise.variance_at(middle) / known.variance_at(middle)
                            clean = ww.restoration.denoise(y[None], noise=noise)[0, 0]
                            row[name] = round(psnr(clean, x), 3)
                            row[f"{name}_deviation"] = round(ratio**0.5, 4)
                        file.write(json.dumps(row) + "\n")
                        file.flush()


def table(a: argparse.Namespace) -> None:
    """Print how much worse the result is than with the noise known, and the error of σ."""
    rows = [json.loads(line) for line in a.out.read_text(encoding="utf-8").splitlines()]
    for side in (48, 64, 96, 128):
        for kind in NOISES:
            part = [row for row in rows if row["side"] == side and row["kind"] == kind]
            if not part:
                continue
            words = []
            for name in ("own", "all"):
                loss = np.mean([row["known"] - row[name] for row in part])
                error = np.mean([abs(row[f"{name}_deviation"] - 1) for row in part])
                words.append(f"{name}: {loss:.2f} dB below known, deviation off by {error:.1%}")
            print(f"{side:4} {kind:8} ({len(part)}): {'; '.join(words)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    measure(a) if a.what == "measure" else table(a)


if __name__ == "__main__":
    main()
