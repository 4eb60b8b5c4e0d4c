"""Time of anomaly detection as a person waits for it: commands on folders, page and all.

    python benchmarks/anomaly.py magnetic-tiles.zip          # writes results/anomaly.json

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
from typing import Any

import numpy as np
from machine import machine
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduction.studies.anomaly_tiles import parts_of, pixels, read_tiles

RESULTS = Path(__file__).parent / "results" / "anomaly.json"
SIDE, SMALL, MANY = 200, 64, 1000


def save(folder: Path, pictures: list[np.ndarray]) -> Path:
    folder.mkdir()
    for n, picture in enumerate(pictures):
        Image.fromarray(np.rint(255 * picture).astype(np.uint8)).save(folder / f"{n:04}.png")
    return folder


def square(picture: np.ndarray, size: int) -> np.ndarray:
    """A square of a tile, mirrored beyond its border."""
    wide = np.pad(picture, [(0, max(0, size - side)) for side in picture.shape], "symmetric")
    return wide[:size, :size]


def run(*arguments: str | Path) -> dict[str, Any]:
    used, start, load = (
        resource.getrusage(resource.RUSAGE_CHILDREN),
        time.perf_counter(),
        os.getloadavg()[0],
    )
    subprocess.run([sys.executable, "-m", "whatwhere", "anomaly", *map(str, arguments)], check=True)
    wall, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return {
        "seconds": round(wall, 1),
        "processor seconds": round(processor, 1),
        "load before": round(load, 2),
    }


def main(tiles: str) -> None:
    parts = parts_of(read_tiles(tiles))
    normal, new = pixels(parts["fit"]), pixels(parts["validation"] + parts["test"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many, small = (
            [square(new[n % len(new)], size) for n in range(MANY)] for size in (SIDE, SMALL)
        )
        sources = {"normal": normal, "new": new[:400], "many": many, "small": small}
        sources["small normal"] = [square(picture, SMALL) for picture in normal]
        made = [save(folder / n, p) for n, p in sources.items()]
        rows = {
            "fit to 200 tiles": run("fit", made[0], "--out", folder / "detector"),
            "score 400 tiles": run(
                "score", folder / "detector", made[1], "--out", folder / "report"
            ),
            "score 1,000 pictures of 200 x 200": run(
                "score", folder / "detector", made[2], "--out", folder / "large"
            ),
            "fit to 200 pictures of 64 x 64": run(
                "fit", made[4], "--out", folder / "small detector"
            ),
            "score 1,000 pictures of 64 x 64": run(
                "score", folder / "small detector", made[3], "--out", folder / "s"
            ),
            "bytes of the detector": (folder / "detector").stat().st_size,
            "bytes of the page": (folder / "large" / "index.html").stat().st_size,
        }
    print(json.dumps(rows, indent=1))
    RESULTS.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
