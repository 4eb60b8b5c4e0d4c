"""Salt and pepper noise: `inpaint` of the pixels that are 0 or 255, and `denoise`.

    python -m benchmarks.restoration.salt_and_pepper --data photographs/bsd68.tar

A share of the pixels of five photographs becomes black or white. A line of the result has the PSNR
in dB of the damaged picture, of both functions without a setting, and of a median of 3 × 3 pixels.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

import whatwhere as ww

OUT = Path(__file__).parent / "results" / "salt_and_pepper.jsonl"


def photographs(archive: Path, count: int) -> dict[str, np.ndarray]:
    """The middle 160 × 160 pixels of `count` pictures, evenly spread over the archive."""
    with tarfile.open(archive) as files:
        members = sorted((m for m in files.getmembers() if m.isfile()), key=lambda m: m.name)
        chosen = members[:: len(members) // count][:count]
        pictures = {}
        for member in chosen:
            file = files.extractfile(member)
            assert file is not None
            picture = np.asarray(Image.open(io.BytesIO(file.read())).convert("L"))
            top, left = ((side - 160) // 2 for side in picture.shape)
            pictures[Path(member.name).stem] = picture[top : top + 160, left : left + 160]
    return pictures


def median(picture: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(picture, 1, "reflect"), (3, 3))
    return np.median(windows, (2, 3))


def psnr(result: np.ndarray, truth: np.ndarray) -> float:
    return round(float(10 * np.log10(255**2 / np.mean((result - truth.astype(float)) ** 2))), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=5)
    a = parser.parse_args()
    rows = []
    for name, truth in photographs(a.data, a.count).items():
        for share in (0.05, 0.2):
            random = np.random.default_rng(0)
            hit = random.random(truth.shape) < share
            damaged = np.where(hit, 255 * random.integers(0, 2, truth.shape), truth)
            damaged = damaged.astype(np.uint8)
            known = (damaged > 0) & (damaged < 255)
            row: dict[str, object] = {"picture": name, "share": share}
            row["damaged"] = psnr(damaged, truth)
            row["inpaint"] = psnr(ww.restoration.inpaint(damaged, known), truth)
            row["denoise"] = psnr(ww.restoration.denoise(damaged), truth)
            row["median"] = psnr(median(damaged), truth)
            rows.append(row)
            print(row, flush=True)
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
