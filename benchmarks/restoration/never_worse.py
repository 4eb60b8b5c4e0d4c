"""Is a picture ever worse after `denoise`?  python -m benchmarks.restoration.never_worse

500 pictures of every kind (smooth, text, lattices, stripes, checkerboards, halftones, saturated),
at four strengths of noise; the noise is given or estimated, and values beyond black and white are
clipped or not. Every line of `results/never_worse.jsonl` has the signal-to-noise ratio before and
after, in dB.
"""

import argparse
import json
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

import whatwhere as ww

OUT = Path(__file__).parent / "results" / "never_worse.jsonl"
LEVELS = (5 / 255, 10 / 255, 25 / 255, 50 / 255)
SIDES = (48, 64, 96)
TOLERANCE = 0.05  # dB: less is no difference


def smooth(rng: np.random.Generator, side: int) -> np.ndarray:
    """A few long waves."""
    y, x = np.mgrid[0:side, 0:side] / side
    waves = [
        rng.normal() * np.cos(2 * np.pi * (a * x + b * y) + rng.uniform(0, 6))
        for a, b in rng.uniform(-1.5, 1.5, (4, 2))
    ]
    return stretch(np.sum(waves, 0))


def text(rng: np.random.Generator, side: int) -> np.ndarray:
    """Lines of letters on a bright ground."""
    page = Image.new("L", (side, side), 230)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,."
    size = int(rng.integers(8, 15))
    font = ImageFont.load_default(size)
    for top in range(2, side, size + 3):
        line = "".join(rng.choice(list(letters), side // 3))
        ImageDraw.Draw(page).text((2, top), line, fill=25, font=font)
    return np.asarray(page) / 255


def lattice(rng: np.random.Generator, side: int) -> np.ndarray:
    """Points or lines at a period of 2 to 9 pixels, along both axes."""
    period = int(rng.integers(2, 10))
    y, x = np.mgrid[0:side, 0:side]
    phase = rng.integers(0, period, 2)
    lines = ((y + phase[0]) % period == 0) | ((x + phase[1]) % period == 0)
    points = ((y + phase[0]) % period == 0) & ((x + phase[1]) % period == 0)
    low, high = np.sort(rng.uniform(0, 1, 2))
    return np.where(lines if rng.random() < 0.5 else points, high, low)


def stripes(rng: np.random.Generator, side: int) -> np.ndarray:
    """Waves of one direction, as sines or as bars."""
    y, x = np.mgrid[0:side, 0:side]
    angle = rng.uniform(0, np.pi)
    wave = np.sin(2 * np.pi / rng.uniform(2, 12) * (x * np.cos(angle) + y * np.sin(angle)))
    contrast = rng.uniform(0.05, 0.5)
    return 0.5 + contrast * (np.sign(wave) if rng.random() < 0.5 else wave)


def checkerboard(rng: np.random.Generator, side: int) -> np.ndarray:
    """Squares of 1 to 8 pixels."""
    size = int(rng.integers(1, 9))
    y, x = np.mgrid[0:side, 0:side] // size
    low, high = np.sort(rng.uniform(0, 1, 2))
    return np.where((x + y) % 2 == 0, low, high)


def halftone(rng: np.random.Generator, side: int) -> np.ndarray:
    """Dots whose size follows a smooth picture, as in print."""
    period = rng.uniform(3, 8)
    y, x = np.mgrid[0:side, 0:side] * 2 * np.pi / period
    screen = (np.cos(x + 0.3 * y) + np.cos(y - 0.3 * x)) / 4 + 0.5
    return np.where(screen > smooth(rng, side), 0.95, 0.05)


def saturated(rng: np.random.Generator, side: int) -> np.ndarray:
    """Mostly black and white, with edges between them."""
    picture = smooth(rng, side)
    return np.clip((picture - 0.5) * rng.uniform(3, 30) + 0.5, 0, 1)


def stretch(values: np.ndarray) -> np.ndarray:
    low, high = values.min(), values.max()
    return (values - low) / max(high - low, 1e-9)


KINDS: tuple[Callable[[np.random.Generator, int], np.ndarray], ...] = (
    smooth,
    text,
    lattice,
    stripes,
    checkerboard,
    halftone,
    saturated,
)


def psnr(picture: np.ndarray, truth: np.ndarray) -> float:
    return -10 * math.log10(max(float(np.square(picture - truth).mean()), 1e-12))


def measure(number: int) -> list[dict[str, Any]]:
    """Denoise the picture of a number, in all four ways."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(number)
    kind = KINDS[number % len(KINDS)]
    truth = kind(rng, SIDES[number // len(KINDS) % len(SIDES)])
    sigma = LEVELS[number // (len(KINDS) * len(SIDES)) % len(LEVELS)]
    model = ww.restoration.load_denoiser()
    lines = []
    for clipped in (False, True):
        noisy = truth + sigma * rng.normal(size=truth.shape)
        noisy = noisy.clip(0, 1) if clipped else noisy
        for given in (True, False):
            noise = sigma if given else None
            result = ww.restoration.denoise(noisy[None, None].astype(np.float32), model, noise)
            before = psnr(noisy, truth)
            after = psnr(result[0, 0], truth)
            lines.append(
                {
                    "number": number,
                    "kind": kind.__name__,
                    "side": len(truth),
                    "sigma": round(255 * sigma, 1),
                    "clipped": clipped,
                    "given": given,
                    "before": round(before, 3),
                    "after": round(after, 3),
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    worse = []
    gains: dict[str, list[float]] = {}
    with ProcessPoolExecutor(arguments.processes) as pool, arguments.out.open("w") as file:
        for lines in pool.map(measure, range(arguments.pictures)):
            for line in lines:
                print(json.dumps(line), file=file, flush=True)
                gain = line["after"] - line["before"]
                gains.setdefault(line["kind"], []).append(gain)
                if gain < -TOLERANCE:
                    worse.append((gain, line))
    for kind, values in gains.items():
        mean = np.mean(values)
        print(f"{kind:14} {len(values):5}  mean {mean:6.2f} dB, least {min(values):6.2f}")
    for _, line in sorted(worse, key=lambda pair: pair[0])[:20]:
        print("worse:", line)
    print(f"{len(worse)} of {sum(map(len, gains.values()))} are worse by more than {TOLERANCE} dB")


if __name__ == "__main__":
    main()
