"""Time of anomaly detection as a person waits for it: commands on folders, page and all.

    python -m benchmarks.defects.detector_time magnetic-tiles.zip          # writes
    results/detector_time.json

Fit to 200 pictures of normal tiles, score 400 pictures of tiles; score 1,000 pictures of 200 × 200
pixels, cut from tiles; the same of 64 × 64, which are searched at full resolution by a detector of
their own. Seconds of the wall and of the processor, which differ where other programs run: their
load is recorded.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.defects.anomaly_tiles import parts_of, pixels, read_tiles
from benchmarks.machine import machine

RESULTS = Path(__file__).parent / "results" / "detector_time.json"
SIDE = 200  # pixels of a square
SMALL = 64  # pixels of a square that is searched at full resolution
MANY = 1000  # pictures


def save(folder: Path, pictures: list[np.ndarray]) -> Path:
    folder.mkdir()
    for n, picture in enumerate(pictures):
        Image.fromarray(np.rint(255 * picture).astype(np.uint8)).save(folder / f"{n:04}.png")
    return folder


def square(picture: np.ndarray, size: int) -> np.ndarray:
    """A square of a tile, mirrored beyond its border."""
    wide = np.pad(picture, [(0, max(0, size - side)) for side in picture.shape], "symmetric")
    return wide[:size, :size]


def processor_seconds() -> float:
    """Of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*arguments: str | Path) -> dict[str, float]:
    """The times of one command."""
    load = os.getloadavg()[0]
    processor = processor_seconds()
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "whatwhere", "anomaly", *map(str, arguments)], check=True)
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "processor seconds": round(processor_seconds() - processor, 1),
        "load before": round(load, 2),
    }


def main(tiles: str) -> None:
    parts = parts_of(read_tiles(tiles))
    normal = pixels(parts["fit"])
    new = pixels(parts["validation"] + parts["test"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiles_again = [new[n % len(new)] for n in range(MANY)]
        normal_tiles = save(folder / "normal", normal)
        new_tiles = save(folder / "new", new[:400])
        large = save(folder / "many", [square(tile, SIDE) for tile in tiles_again])
        small = save(folder / "small", [square(tile, SMALL) for tile in tiles_again])
        small_normal = save(folder / "small normal", [square(tile, SMALL) for tile in normal])
        rows = {
            "fit to 200 tiles": run("fit", normal_tiles, "--out", folder / "detector"),
            "score 400 tiles": run(
                "score", folder / "detector", new_tiles, "--out", folder / "report"
            ),
            "score 1,000 pictures of 200 x 200": run(
                "score", folder / "detector", large, "--out", folder / "large"
            ),
            "fit to 200 pictures of 64 x 64": run(
                "fit", small_normal, "--out", folder / "small detector"
            ),
            "score 1,000 pictures of 64 x 64": run(
                "score", folder / "small detector", small, "--out", folder / "s"
            ),
            "bytes of the detector": (folder / "detector").stat().st_size,
            "bytes of the page": (folder / "large" / "index.html").stat().st_size,
        }
    print(json.dumps(rows, indent=1))
    RESULTS.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
