"""Real noise of microscopes and cameras: whatwhere without a setting, and other methods, on pairs
of a noisy and a clean picture.

    python -m benchmarks.restoration.real_noise ours --data noisy.zip --crop 256
    python benchmarks/restoration/real_noise.py tv nlm bm3d bm3d-vst --data noisy.zip --crop 256
    python -m benchmarks.restoration.real_noise table

The archive holds GROUP/noisy/NAME.png and GROUP/clean/NAME.png: micrographs of the mixed test set
of the Fluorescence Microscopy Denoising data (six fields, four frames each) and photographs of the
CC data. Crops are from the middle. Other methods get the deviation of white noise that scikit-image
estimates; `bm3d-vst` gets the gain and the offset that `ours` estimated, so `ours` runs first.
Results meet in a file, since methods need different environments.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "real_noise.jsonl"
Row = dict[str, Any]


def pairs(
    archive: Path, crop: int | None, only: str
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, noisy and clean picture, in grey levels."""
    from PIL import Image

    with zipfile.ZipFile(archive) as files:
        for noisy in sorted(name for name in files.namelist() if "/noisy/" in name):
            group, _, name = noisy.split("/")
            if not name.endswith(only + ".png"):
                continue
            both = [
                np.asarray(Image.open(io.BytesIO(files.read(path))))
                for path in (noisy, f"{group}/clean/{name}")
            ]
            if crop:
                top, left = ((side - crop) // 2 for side in both[0].shape[:2])
                both = [x[top : top + crop, left : left + crop] for x in both]
            yield f"{group}/{name[:-4]}", both[0], both[1]


def psnr(result: np.ndarray, truth: np.ndarray) -> float:
    """In dB, after rounding to grey levels as a file does."""
    shown = np.rint(result.astype(float)).clip(0, 255)
    return float(10 * np.log10(255**2 / np.mean((shown - truth) ** 2)))


def ours(noisy: np.ndarray, row: Row) -> np.ndarray:
    """Without a setting; what was estimated is kept."""
    import whatwhere as ww

    planes = noisy[None] if noisy.ndim == 2 else noisy.transpose(2, 0, 1)
    noise = ww.restoration.estimate_noise(ww.data.load(planes[None])[:][0] * 255)
    row["noise"] = {
        name: getattr(noise, name) for name in ("gain", "sigma", "offset", "correlation")
    }
    return ww.restoration.denoise(noisy)


def ssim(result: np.ndarray, truth: np.ndarray) -> float:
    """Structural similarity of bytes, the mean over channels: Gaussian windows of 1.5 pixels (Wang
    et al. 2004)."""
    from scipy.ndimage import gaussian_filter

    def mean(values: np.ndarray) -> np.ndarray:
        return gaussian_filter(values, (1.5, 1.5) + (0,) * (values.ndim - 2), truncate=3.5)

    a, b = np.rint(result.astype(float)).clip(0, 255), truth.astype(float)
    ma, mb = mean(a), mean(b)
    va, vb, both = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    c, d = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    similar = (2 * ma * mb + c) * (2 * both + d) / ((ma * ma + mb * mb + c) * (va + vb + d))
    return float(similar[5:-5, 5:-5].mean())


def white_sigma(noisy: np.ndarray) -> float:
    from skimage.restoration import estimate_sigma

    axis = 2 if noisy.ndim == 3 else None
    return float(estimate_sigma(noisy.astype(float), channel_axis=axis, average_sigmas=True))


def tv(noisy: np.ndarray, row: Row) -> np.ndarray:
    from skimage.restoration import denoise_tv_chambolle

    axis = 2 if noisy.ndim == 3 else None
    return denoise_tv_chambolle(noisy.astype(float), weight=white_sigma(noisy), channel_axis=axis)


def nlm(noisy: np.ndarray, row: Row) -> np.ndarray:
    from skimage.restoration import denoise_nl_means

    sigma, axis = white_sigma(noisy), 2 if noisy.ndim == 3 else None
    values = noisy.astype(float)
    return denoise_nl_means(
        values, patch_size=5, patch_distance=6, h=0.8 * sigma, sigma=sigma, channel_axis=axis
    )


def bm3d(noisy: np.ndarray, row: Row) -> np.ndarray:
    import bm3d as package

    restore = package.bm3d if noisy.ndim == 2 else package.bm3d_rgb
    return restore(noisy.astype(float) / 255, sigma_psd=white_sigma(noisy) / 255) * 255


def bm3d_vst(noisy: np.ndarray, row: Row) -> np.ndarray:
    """BM3D after the generalised Anscombe transform, given the noise that `ours` estimated."""
    import bm3d as package

    noise = row["noise"]
    if not noise["gain"]:
        return bm3d(noisy, row)
    gain, level = noise["gain"], noise["sigma"] ** 2 - noise["gain"] * noise["offset"]
    stable = 2 / gain * np.sqrt(np.maximum(gain * noisy + 3 / 8 * gain**2 + level, 0))
    low, high = stable.min(), stable.max()
    clean = package.bm3d((stable - low) / (high - low), sigma_psd=1 / (high - low))
    d = np.maximum(low + (high - low) * clean, 2 * math.sqrt(3 / 8))
    root = math.sqrt(1.5)
    counts = d**2 / 4 + root / (4 * d) - 11 / (8 * d**2) + 5 * root / (8 * d**3) - 1 / 8
    return gain * counts - level / gain


METHODS: dict[str, Callable[[np.ndarray, Row], np.ndarray]] = {
    "ours": ours,
    "tv": tv,
    "nlm": nlm,
    "bm3d": bm3d,
    "bm3d-vst": bm3d_vst,
}


def rows(results: Path) -> list[Row]:
    """The results so far."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def run(method: str, archive: Path, crop: int | None, only: str, results: Path) -> None:
    """Restore every pair that the results lack."""
    done = {(row["method"], row["picture"], row["crop"]): row for row in rows(results)}
    for name, noisy, clean in pairs(archive, crop, only):
        if (method, name, crop) in done:
            continue
        row: Row = {"method": method, "picture": name, "crop": crop}
        known = done.get(("ours", name, crop))
        if known is not None and method != "ours":
            row["noise"] = known["noise"]
        start = time.process_time()
        result = METHODS[method](noisy, row)
        row["seconds"] = round(time.process_time() - start, 2)
        row["noisy"] = round(psnr(noisy, clean), 3)
        row["psnr"] = round(psnr(result, clean), 3)
        row["ssim"] = round(ssim(result, clean), 4)
        results.parent.mkdir(exist_ok=True)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


def table(results: Path) -> None:
    """Print the mean of every method, group and size."""
    found = rows(results)
    for crop in sorted({row["crop"] or 512 for row in found}):
        for group in ("micrographs", "camera"):
            for method in METHODS:
                own = [
                    row
                    for row in found
                    if (row["crop"] or 512) == crop
                    and row["method"] == method
                    and row["picture"].startswith(group)
                ]
                if own:
                    before, after, seconds = (
                        np.mean([row[key] for row in own]) for key in ("noisy", "psnr", "seconds")
                    )
                    least = min(row["psnr"] - row["noisy"] for row in own)
                    similar = np.mean([row.get("ssim", math.nan) for row in own])
                    print(
                        f"{group} {crop}² {method} ({len(own)}): {before:.2f} → {after:.2f} dB,"
                        f" least gain {least:.2f}, SSIM {similar:.3f}, {seconds:.1f} s"
                    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=[*METHODS, "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--crop", type=int)
    parser.add_argument("--only", default="", help="pictures whose name ends like this")
    parser.add_argument("--out", type=Path, default=RESULTS)
    a = parser.parse_args()
    for what in a.what:
        if what == "table":
            table(a.out)
        else:
            run(what, a.data, a.crop, a.only, a.out)
