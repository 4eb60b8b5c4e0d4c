"""Anomaly detection compared: magnetic tiles (`anomaly_tiles.py`), textures, and digits of an
unknown class.

    python -m benchmarks.defects.anomaly magnetic-tiles.zip TEXTURES [PROCESSES [NAMES]]

It needs kymatio for one method; TEXTURES is a folder of brick.png, grass.png and gravel.png of
scikit-image's data. NAMES: of the rows to measure (all). The settings for small pictures are chosen
on the mean of `DRAWS` of the textures. Results go to benchmarks/defects/results/anomaly.json,
which also keeps earlier results.

Tried without gain, on the validation part or on textures: other scales and cells, filters of 9 and
17 pixels, reflected borders, less whitening, eigenvectors as features, energies by sign, mean
squares, several quantiles of a map, light and smoothness as kinds of evidence, weights or networks
learned from painted defects, evidence linear in the size or in the surface of a picture. For small
pictures cells of 4 pixels cost 0.02 on brick, half of the own mean another 0.02. The logarithm of
brightness, which large pictures need (0.064 on validation tiles, whose defects are dark), costs
small ones 0.03 on the mean of the textures: it hides bright scratches.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import whatwhere as ww
from benchmarks.defects.anomaly_tiles import (
    auroc,
    descriptor_methods,
    detector_result,
    test_maps,
    tile_methods,
    validate_maps,
)

RESULTS = Path(__file__).parent / "results" / "anomaly.json"


# Textures and digits of before --------------------------------------------------------------------

SIDE, COUNT = 64, 24
TEXTURES = ("grass", "brick", "gravel")
DEFECTS = ("blurred", "scratched", "turned")
# the half that is normal, and the seed
DRAWS = [(half, seed) for seed in (100, 200) for half in (0, 1)]


def texture_tiles(file: Path, half: int, seed: int) -> np.ndarray:
    """Tiles [N, H, W] at random places in the left (0) or right (1) half of a texture."""
    picture, generator = ww.data.load(file)[0].mean(0).numpy(), np.random.default_rng(seed)
    width = picture.shape[1] // 2
    side = picture[:, half * width : (half + 1) * width]
    places = generator.integers(0, np.array(side.shape) - SIDE + 1, (COUNT, 2))
    return np.stack([side[y : y + SIDE, x : x + SIDE] for y, x in places])


def damage(normal: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The tiles with a defect each (a blurred disc, a scratch, a disc turned by a quarter), and
    where it is."""
    from scipy.ndimage import gaussian_filter

    generator, damaged, masks = (
        np.random.default_rng(seed),
        normal.copy(),
        np.zeros(normal.shape, bool),
    )
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for n, tile in enumerate(damaged):
        y, x = generator.integers(14, SIDE - 14, 2)
        disc = (rows - y) ** 2 + (columns - x) ** 2 <= 8**2
        if n % 3 == 0:
            masks[n], change = disc, gaussian_filter(tile, 2)
        elif n % 3 == 1:
            masks[n] = (abs((rows - y) - (columns - x)) <= 1) & (abs(rows - y) <= 12)
            change = np.full_like(tile, tile.max())
        else:
            masks[n], change = disc, np.roll(np.rot90(tile), (y // 2, x // 2), (0, 1))
        damaged[n] = np.where(masks[n], change, tile)
    return damaged, masks


def other_draws(name: str) -> dict[str, dict[str, float]]:
    """AUROC of pixels in other parts of the texture than those of `texture`."""
    return {f"half {half}, seed {seed}": texture(name, half, seed) for half, seed in DRAWS}


def texture(name: str, half: int = 0, seed: int | None = None) -> dict[str, float]:
    """AUROC of pixels, of all defects and of each kind; `half` is normal, the other one has
    defects."""
    file, seed = (
        Path(os.environ["TEXTURES"]) / f"{name}.png",
        (0 if name == "grass" else 10) if seed is None else seed,
    )
    pictures, masks = damage(texture_tiles(file, 1 - half, seed), seed + 1)
    maps = np.stack(
        ww.AnomalyDetector().fit(texture_tiles(file, half, seed + 2)).anomaly_map(pictures)
    )
    parts = {"all": slice(None), **{kind: slice(n, None, 3) for n, kind in enumerate(DEFECTS)}}
    return {kind: auroc(masks[p].ravel(), maps[p].ravel()) for kind, p in parts.items()}


def digits(unknown: int) -> dict[str, Any]:
    """One class of the first 2,000 training digits unknown: AUROC on the 2,000 test digits."""
    known, test = ww.data.load("digits"), ww.data.load("digits", split="test")
    assert known.labels is not None
    assert test.labels is not None
    start = time.process_time()
    detector = ww.AnomalyDetector(aligned=True).fit(known[:2000][known.labels[:2000] != unknown])
    scores = -detector.score_samples(test[:2000])
    row = {"auroc": auroc(test.labels[:2000] == unknown, scores)}
    return {**row, "processor seconds": round(time.process_time() - start, 1)}


# All of it, in several processes ------------------------------------------------------------------


def measure(
    pool: ProcessPoolExecutor, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(section, rows), as they come."""
    jobs: dict[tuple[str, str], tuple[Callable[..., Any], Any]] = {
        ("tiles", "AnomalyDetector"): (detector_result, 200),
        ("tiles", "AnomalyDetector, 10 normal pictures"): (detector_result, 10),
        **{("textures, pixels", name): (texture, name) for name in TEXTURES},
        **{
            ("textures, other draws", f"{name}, other draws"): (other_draws, name)
            for name in TEXTURES
        },
        **{("digits, one class unknown", str(unknown)): (digits, unknown) for unknown in range(10)},
    }
    found = {key: pool.submit(work, what) for key, (work, what) in jobs.items() if wanted(key[1])}
    descriptors = pool.submit(descriptor_methods) if wanted("descriptors") else None
    tried = {
        method: [pool.submit(validate_maps, method, setting) for setting in settings]
        for method, settings in tile_methods().items()
        if wanted(method)
    }
    for (section, name), row in found.items():
        yield section, {name: row.result()}
    if descriptors:
        yield "tiles", descriptors.result()
    for method, settings in tried.items():
        validation = {
            name: value for setting in settings for name, value in setting.result().items()
        }
        best = max(validation, key=validation.__getitem__)
        test = pool.submit(test_maps, method, best).result()
        yield "tiles", {method: {"validation": validation, "setting": best, "test": test}}


def main(tiles: str, textures: str, processes: str = "2", *names: str) -> None:
    os.environ.update(TILES=tiles, TEXTURES=textures, OMP_NUM_THREADS="1")
    results = json.loads(RESULTS.read_text())
    with ProcessPoolExecutor(int(processes), get_context("spawn")) as pool:
        for section, rows in measure(pool, lambda name: not names or name in names):
            print(section, rows, flush=True)
            results[section] = {**results.get(section, {}), **rows}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
