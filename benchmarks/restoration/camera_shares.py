"""Which share of what looks like a camera's noise can be removed so that no picture becomes worse?

    python -m benchmarks.restoration.camera_shares measure --data DATA
    python -m benchmarks.restoration.camera_shares table

`measure` removes the noise that the flattest blocks have from every picture, whatever the
classifier says, and writes the products of what was removed, r, and of the true noise, n, with the
measures that tell how far r may be texture. A share s of r leaves |n|² - 2 s (r n) + s² |r|².
`table` prints how many of those that the classifier takes for noisy become worse by a constant
share, and by the rule of `whatwhere.restoration.camera`.

The pictures are crops of six sets, half-way between those that `any_picture.py` takes, with 18
kinds of noise: white, correlated, JPEG and of simulated cameras, also on blurred pictures.
"""

from __future__ import annotations

import argparse
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import whatwhere as ww
from benchmarks.restoration.any_picture import (
    _members,
    bytes_of,
    correlated,
    hash_of,
    jpeg,
    white,
)
from benchmarks.restoration.camera_noise import interpolated, sharpened, smoothed_colour
from whatwhere.restoration.camera import (
    CameraSettings,
    _brightness,
    _energy_of_flat_parts,
    camera_features,
    share_without_direction,
)
from whatwhere.restoration.correlation import fit_width
from whatwhere.restoration.denoiser import plane_restorer
from whatwhere.restoration.likeness import ramp
from whatwhere.restoration.planes import OPPONENT, restore_colour

OUT = Path(__file__).parent / "results" / "camera_shares.jsonl"
SETS = {  # archive, start of the names, number of pictures, side
    "photographs": ("photographs/cbsd432.tar", "", 26, 192),
    "blood": ("blood-cells.zip", "", 12, 160),
    "fruit": ("unseen/folders.zip", "fruit/", 10, 160),
    "dtd": ("unseen/folders.zip", "dtd/", 26, 160),
    "wbc": ("unseen/folders.zip", "wbc1/", 10, 160),
    "screws": ("unseen/defects.zip", "screws/good/", 12, 192),
}
Pixels = np.ndarray
Made = tuple[Pixels, Pixels]


def crops(data: Path) -> Iterator[tuple[str, Pixels]]:
    """Yield names and middles of pictures, as JPEG of little loss."""
    for name, (archive, start, count, side) in SETS.items():
        files = _members(data / archive, start)
        step = max(1, len(files) // count)
        for path in sorted(files)[step // 2 :: step][:count]:
            picture = Image.open(io.BytesIO(files[path]())).convert("RGB")
            left, top = (max(0, (n - side) // 2) for n in picture.size)
            right, bottom = (
                min(n, m + side) for n, m in zip(picture.size, (left, top), strict=True)
            )
            file = io.BytesIO()
            picture.crop((left, top, right, bottom)).save(file, "JPEG", quality=96, subsampling=0)
            yield f"{name}/{path.replace('/', '_')}", np.asarray(Image.open(file))


def blurred(x: Pixels, sigma: float) -> Pixels:
    kernel = np.exp(-(np.arange(-6, 7) ** 2) / (2 * sigma**2))
    kernel /= kernel.sum()
    p = np.pad(x.astype(float), ((6, 6), (6, 6), (0, 0)), mode="reflect")
    p = sum(kernel[i] * p[i : i + x.shape[0]] for i in range(13))
    return bytes_of(sum(kernel[i] * p[:, i : i + x.shape[1]] for i in range(13)))


def camera(x: Pixels, name: str, gain: float) -> Made:
    """A picture as a camera of random properties shows it, and the same without noise."""
    random, noise_random = (np.random.default_rng(hash_of(name) + k) for k in (0, 1))
    balance = np.array([random.uniform(1.3, 2.2), 1, random.uniform(1.3, 2.2)])
    by_difference, smooth, sharp = (random.random() < share for share in (0.5, 0.3, 0.2))
    quality, read = int(random.integers(85, 100)), random.uniform(0, 2)
    linear = (x / 255.0) ** 2.2

    def shot(noise: Pixels, quality: int) -> Pixels:
        shown = interpolated(linear + noise, by_difference)
        shown = smoothed_colour(shown) if smooth else shown
        picture = bytes_of(255 * shown.clip(0, 1) ** (1 / 2.2))
        return jpeg(sharpened(picture) if sharp else picture, quality)

    counted = noise_random.poisson(linear / gain) * gain - linear
    noise = (counted + read * gain * noise_random.normal(size=linear.shape)) * np.sqrt(balance)
    return shot(noise, quality), shot(0 * noise, 100)


def kinds(x: Pixels, name: str) -> Iterator[tuple[str, Callable[[], Made]]]:
    """Yield the name of every kind of noise, and what makes a noisy picture and its truth."""

    def random(kind: str) -> np.random.Generator:
        return np.random.default_rng(hash_of(name + kind))

    smooth = blurred(x, 1.5)
    yield "none", lambda: (x, x)
    yield "blur-none", lambda: (smooth, smooth)
    for s in (3, 10):
        yield f"white-{s}", lambda s=s: (white(x, random(f"w{s}"), s), x)
    for s, w in ((3, 0.8), (6, 0.6), (8, 1.2), (20, 0.8)):
        yield f"correlated-{s}-{w}", lambda s=s, w=w: (correlated(x, random(f"c{s}"), s, w), x)
    for s, q in ((4, 90), (10, 85)):
        yield f"jpeg-{s}", lambda s=s, q=q: (jpeg(white(x, random(f"j{s}"), s), q), x)
    for gain in (4e-4, 1.5e-3, 6e-3):
        yield f"camera-{gain}", lambda gain=gain: camera(x, name, gain)
    yield "blur-white-3", lambda: (white(smooth, random("bw"), 3), smooth)
    yield "blur-correlated-3", lambda: (correlated(smooth, random("bc"), 3, 0.8), smooth)
    yield "blur-correlated-6", lambda: (correlated(smooth, random("bd"), 6, 0.6), smooth)
    yield "blur-camera-1e-3", lambda: camera(smooth, name + "b", 1e-3)
    yield "blur-jpeg-4", lambda: (jpeg(white(smooth, random("bj"), 4), 90), smooth)


def planes(x: Pixels) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)).astype(np.float64))


def row_of(noisy: Pixels, truth: Pixels, restore: Any, blurred_by: float) -> dict[str, Any] | None:
    """Measure the removal of the noise that the flattest blocks have; None without any."""
    y, t = planes(noisy), planes(truth)
    low = float(y.min())
    span = float(y.max()) - low
    found = camera_features([(y - low) / span]) if span else None
    if found is None:
        return None
    settings = CameraSettings()
    widths, sigmas = zip(*(fit_width(found.deviations[:, p]) for p in range(3)), strict=True)
    unit = (y - low) / span
    with torch.no_grad():
        middle = unit.mean()
        levels = [blurred_by * sigma for sigma in sigmas]
        clean = restore_colour(restore, (unit - middle).float(), levels).double() + middle
    r, n = unit - clean, (y - t) / span
    weights = torch.tensor(settings.weights, dtype=torch.float64)
    score = float(weights @ found.values[1:]) - settings.middle
    inverse = OPPONENT.inverse()
    variances = torch.tensor(sigmas, dtype=torch.float64).square()
    mean = float((inverse @ torch.diag(variances) @ inverse.T).trace() / 3) ** 0.5
    light = _brightness(r)
    return {
        "score": round(score if mean >= settings.weakest else -99.0, 4),
        "widths": widths,
        "sigmas": [round(sigma, 6) for sigma in sigmas],
        "rr": float(r.square().mean()),
        "rn": float((r * n).mean()),
        "nn": float(n.square().mean()),
        "energy": round(float(light.square().mean()) / sigmas[0] ** 2, 4),
        "flat": round(_energy_of_flat_parts(light, _brightness(clean), settings), 4),
        "direction": share_without_direction(r),
    }


def measure(a: argparse.Namespace) -> None:
    """Write a line for every picture and kind of noise, in a random order."""
    spec = ww.restoration.RestorationSpec()
    restore = plane_restorer(ww.restoration.load_denoiser(), spec)
    jobs = [(name, *kind) for name, x in crops(a.data) for kind in kinds(x, name)]
    with a.out.open("a", encoding="utf-8") as file:
        for number in np.random.default_rng(0).permutation(len(jobs))[: a.count]:
            name, kind, make = jobs[number]
            row = row_of(*make(), restore, spec.blurred)
            if row is not None:
                file.write(json.dumps({"picture": name, "noise": kind, **row}) + "\n")
                file.flush()


def table(a: argparse.Namespace) -> None:
    """Print the mean gain and how many become worse, for constant shares and for the rule."""
    settings = CameraSettings()
    rows = [json.loads(line) for line in a.out.read_text(encoding="utf-8").splitlines()]
    noisy = [row for row in rows if row["score"] >= settings.sure and row["direction"] > 0]
    print(f"{len(rows)} results, {len(noisy)} of which count as noisy")

    def rule(row: dict[str, Any]) -> float:
        low, high = settings.shares
        share = low + (high - low) * ramp(row["energy"], settings.energy)
        limit = settings.textured + (1 - settings.textured) * ramp(row["flat"], settings.flat)
        light, *colours = row["widths"]
        wider = ramp(sum(colours) / 2 - light, settings.coloured)
        return min(share, high * limit, settings.plain + (1 - settings.plain) * wider)

    ways: dict[str, Callable[[dict[str, Any]], float]] = {"rule": rule}
    ways |= {f"{share}": lambda _, share=share: share for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)}
    for name, way in ways.items():
        gains = []
        for row in noisy:
            s = way(row) * row["direction"]
            left = row["nn"] - 2 * s * row["rn"] + s**2 * row["rr"]
            gains.append(10 * math.log10(max(row["nn"], 1e-12) / max(left, 1e-12)))
        worse = sum(gain < -0.05 for gain in gains)
        print(f"{name:5}: mean {np.mean(gains):5.2f} dB, least {min(gains):6.2f}, {worse} worse")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--count", type=int, help="results, at most")
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    measure(a) if a.what == "measure" else table(a)


if __name__ == "__main__":
    main()
