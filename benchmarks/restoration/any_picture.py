"""Is any picture of any set worse after `denoise` without a setting, and does a clean one stay?

    python -m benchmarks.restoration.any_picture measure --data DATA
    python -m benchmarks.restoration.any_picture table

Pictures of photographs, textures, surfaces, cells, digits and micrographs' truths, each as it is
and with noise: white, photons (Poisson) with an offset, correlated, white and then JPEG, and of a
simulated camera: photons behind a colour mosaic, interpolated, brightened, as JPEG. A picture is
cut to SIDE pixels and has 8 bits after every step, as files have. Every line of the result has the
PSNR before and after, in dB. A picture that counts as clean may have noise of its own; what was
estimated for it is kept, so that a loss against such a picture can be told from one against the
truth.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import whatwhere as ww

OUT = Path(__file__).parent / "results" / "any_picture.jsonl"
Random = np.random.Generator
Pixels = np.ndarray


def pictures(
    data: Path, count: int, side: int, sets: list[str] | None = None
) -> Iterator[tuple[str, str, Pixels]]:
    """Name of the set, name and pixels [H, W] or [H, W, 3] of `count` pictures of every set, or of
    these sets."""
    archives = {
        "photographs": ("photographs/cbsd432.tar", "", "RGB"),
        "photographs-grey": ("photographs/cbsd432.tar", "", "L"),
        "bsd68": ("photographs/bsd68.tar", "", "L"),
        "set12": ("photographs/set12.tar", "", "L"),
        "steel": ("steel-surfaces.zip", "", "L"),
        "tiles": ("magnetic-tiles.zip", "free/", "L"),
        "blood": ("blood-cells.zip", "", "RGB"),
        "fruit": ("unseen/folders.zip", "fruit/", "RGB"),
        "brick": ("unseen/folders.zip", "brick/", "L"),
        "dtd": ("unseen/folders.zip", "dtd/", None),
        "wbc": ("unseen/folders.zip", "wbc1/", "RGB"),
        "solar-mono": ("unseen/defects.zip", "solar-mono/good/", "L"),
        "solar-poly": ("unseen/defects.zip", "solar-poly/good/", "L"),
        "screws": ("unseen/defects.zip", "screws/good/", "RGB"),
        "micrographs": ("unseen/noisy.zip", "micrographs/clean/", "L"),
        "cameras": ("unseen/noisy.zip", "camera/clean/", "RGB"),
    }
    for name, (archive, start, mode) in archives.items():
        if sets and name not in sets:
            continue
        files = _members(data / archive, start)
        step = max(1, len(files) // count)
        for path in sorted(files)[::step][:count]:
            picture = Image.open(io.BytesIO(files[path]()))
            if mode is None:
                mode = "RGB"
            yield name, path, _middle(np.asarray(picture.convert(mode)), side)
    for name, file in (("mnist", "mnist/t10k-images-idx3-ubyte.gz"),):
        if sets and name not in sets:
            continue
        images = ww.data.load(data / file)
        for i in range(count):
            yield name, str(i), np.rint(255 * np.asarray(images[i : i + 1])[0, 0]).astype(np.uint8)


def _members(archive: Path, start: str) -> dict[str, Callable[[], bytes]]:
    if archive.suffix == ".zip":
        files = zipfile.ZipFile(archive)
        return {
            name: lambda name=name: files.read(name)
            for name in files.namelist()
            if name.startswith(start) and not name.endswith("/")
        }
    tar = tarfile.open(archive)  # noqa: SIM115
    return {
        m.name: lambda m=m: tar.extractfile(m).read()  # type: ignore[union-attr]
        for m in tar.getmembers()
        if m.isfile()
    }


def _middle(pixels: Pixels, side: int) -> Pixels:
    top, left = (max(0, (n - side) // 2) for n in pixels.shape[:2])
    return pixels[top : top + side, left : left + side]


def bytes_of(values: Pixels) -> Pixels:
    """Values, white is 255, as bytes."""
    return np.rint(values).clip(0, 255).astype(np.uint8)


def white(x: Pixels, random: Random, sigma: float) -> Pixels:
    return bytes_of(x + sigma * random.normal(size=x.shape))


def photons(x: Pixels, random: Random, gain: float, offset: float, sigma: float) -> Pixels:
    """Counts of gain · n + offset, and white noise."""
    dimmed = offset + x * (1 - offset / 255)
    counts = random.poisson((dimmed - offset) / gain)
    return bytes_of(offset + gain * counts + sigma * random.normal(size=x.shape))


def photons_truth(x: Pixels, offset: float) -> Pixels:
    return offset + x * (1 - offset / 255)


def correlated(x: Pixels, random: Random, sigma: float, width: float) -> Pixels:
    """White noise blurred by a Gaussian, the same for all channels of a third."""
    h, w = x.shape[:2]
    power = np.fft.fftfreq(h)[:, None] ** 2 + np.fft.fftfreq(w) ** 2
    gain = np.exp(-2 * (np.pi * width) ** 2 * power)

    def plane() -> Pixels:
        n = np.fft.ifft2(np.fft.fft2(random.normal(size=(h, w))) * gain).real
        return n / n.std()

    noise = plane() if x.ndim == 2 else np.stack([plane() for _ in range(3)], 2)
    return bytes_of(x + sigma * noise)


def jpeg(x: Pixels, quality: int) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(x).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(io.BytesIO(file.getvalue())))


def camera(x: Pixels, random: Random, gain: float, quality: int) -> Pixels:
    """Photons in linear light behind a colour mosaic, interpolated, brightened, as JPEG."""
    colour = x if x.ndim == 3 else np.stack([x] * 3, 2)
    linear = (colour / 255.0) ** 2.2
    counts = random.poisson(linear / gain) * gain + 0.3 * gain * random.normal(size=linear.shape)
    mosaic = np.zeros_like(linear)
    for channel, row, column in ((0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 1, 1)):
        mosaic[row::2, column::2, channel] = 1
    kernel = torch.tensor([[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]]).double()

    def spread(values: Pixels) -> Pixels:
        planes = torch.from_numpy(values).permute(2, 0, 1)[:, None]
        padded = torch.nn.functional.pad(planes, (1, 1, 1, 1), mode="reflect")
        return torch.nn.functional.conv2d(padded, kernel[None, None])[:, 0].permute(1, 2, 0).numpy()

    full = spread(counts * mosaic) / spread(mosaic)
    shown = bytes_of(255 * full.clip(0, 1) ** (1 / 2.2))
    return jpeg(shown, quality)


NOISES: dict[str, Callable[[Pixels, Random], tuple[Pixels, Pixels]]] = {
    "none": lambda x, r: (x, x),
    "white-3": lambda x, r: (white(x, r, 3), x),
    "white-10": lambda x, r: (white(x, r, 10), x),
    "white-25": lambda x, r: (white(x, r, 25), x),
    "white-60": lambda x, r: (white(x, r, 60), x),
    "photons-2": lambda x, r: (photons(x, r, 2, 15, 1.5), photons_truth(x, 15)),
    "photons-10": lambda x, r: (photons(x, r, 10, -10 + 10, 0), photons_truth(x, 0)),
    "correlated-3": lambda x, r: (correlated(x, r, 3, 0.8), x),
    "correlated-8": lambda x, r: (correlated(x, r, 8, 0.6), x),
    "correlated-25": lambda x, r: (correlated(x, r, 25, 0.8), x),
    "jpeg-4": lambda x, r: (jpeg(white(x, r, 4), 90), x),
    "jpeg-10": lambda x, r: (jpeg(white(x, r, 10), 90), x),
    "jpeg-25": lambda x, r: (jpeg(white(x, r, 25), 75), x),
    "camera-weak": lambda x, r: (
        camera(x, r, 0.001, 95),
        camera(x, r, 1e-9, 100),
    ),
    "camera-strong": lambda x, r: (
        camera(x, r, 0.006, 92),
        camera(x, r, 1e-9, 100),
    ),
}


def psnr(a: Pixels, b: Pixels) -> float:
    error = float(np.mean((a.astype(float) - b.astype(float)) ** 2))
    return min(99.0, 10 * math.log10(255**2 / max(error, 1e-12)))


def estimate(pixels: Pixels) -> ww.restoration.NoiseEstimate:
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return ww.restoration.estimate_noise(torch.from_numpy(planes.astype(np.float64)))


def measure(a: argparse.Namespace) -> None:
    done = set()
    if a.out.exists():
        lines = map(json.loads, a.out.read_text(encoding="utf-8").splitlines())
        done = {(row["set"], row["picture"], row["noise"]) for row in lines}
    a.out.parent.mkdir(exist_ok=True)
    wanted = a.noises or list(NOISES)
    with a.out.open("a", encoding="utf-8") as file:
        for group, name, x in pictures(a.data, a.count, a.side, a.sets):
            own = None
            for kind in wanted:
                if (group, name, kind) in done or (kind.startswith("camera") and x.ndim == 2):
                    continue
                random = np.random.default_rng(abs(hash_of(name + kind)))
                noisy, truth = NOISES[kind](x, random)
                own = own or estimate(x)
                found = own if kind == "none" else estimate(noisy)
                began = time.process_time()
                clean = noisy if found.is_zero else ww.restoration.denoise(noisy, noise=found)
                row: dict[str, Any] = {
                    "set": group,
                    "picture": name,
                    "noise": kind,
                    "before": round(psnr(noisy, truth), 3),
                    "after": round(psnr(clean, truth), 3),
                    "changed": round(psnr(clean, noisy), 2),
                    "found": found.summary(),
                    "own": own.summary(),
                    "seconds": round(time.process_time() - began, 2),
                }
                file.write(json.dumps(row) + "\n")
                file.flush()


def hash_of(text: str) -> int:
    """A number that is the same in every process."""
    import zlib

    return zlib.crc32(text.encode())


def table(a: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in a.out.read_text(encoding="utf-8").splitlines()]
    groups = list(dict.fromkeys(row["set"] for row in rows))
    for kind in NOISES:
        own = [row for row in rows if row["noise"] == kind]
        if not own:
            continue
        if kind == "none":
            for group in groups:
                part = [row["changed"] for row in own if row["set"] == group]
                low = sum(value < 55 for value in part)
                print(f"none {group:18} {len(part):4}: {low} below 55 dB, least {min(part):.1f}")
            continue
        gains = [row["after"] - row["before"] for row in own]
        worse = [row for row in own if row["after"] < row["before"] - 0.05]
        print(
            f"{kind:14} {len(own):4}: mean {np.mean(gains):5.2f} dB, least {min(gains):6.2f},"
            f" {len(worse)} worse"
        )
        for row in sorted(worse, key=lambda row: row["after"] - row["before"])[: a.shown]:
            print("   ", {k: v for k, v in row.items() if k not in ("noise", "seconds")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--count", type=int, default=12, help="pictures of every set")
    parser.add_argument("--side", type=int, default=160)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--noises", nargs="*", choices=list(NOISES))
    parser.add_argument("--shown", type=int, default=20)
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    measure(a) if a.what == "measure" else table(a)


if __name__ == "__main__":
    main()
