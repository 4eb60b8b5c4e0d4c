"""False alarms on normal pictures that are rotated, shifted or blurred, with and without tolerance.

    python -m benchmarks.defects.tolerance defects.zip [--sets …] [--splits 3] [--tiles tiles.zip]

The splits are those of `unseen.py`. Of every picture, a margin of `MARGIN` pixels is cut off; a
changed picture is the same window after the whole picture was changed, so that what moves into it
is real. "default" is the detector without settings, "tolerant" learns with rotation=2, shift=4 and
blur=1. Results go to results/tolerance.json as they come; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage

import whatwhere as ww
from benchmarks.defects.anomaly_tiles import read_tiles
from benchmarks.defects.tile_folds import auroc
from benchmarks.defects.unseen import Split, fold_of_tiles, rate, split_set

RESULTS = Path(__file__).parent / "results" / "tolerance.json"
MARGIN = 10  # pixels
Change = Callable[[np.ndarray], np.ndarray]


def rotated(picture: np.ndarray) -> np.ndarray:
    """A picture rotated by two degrees."""
    return ndimage.rotate(picture, 2, (0, 1), reshape=False, order=1, mode="nearest")


def shifted(picture: np.ndarray) -> np.ndarray:
    """A picture shifted by three pixels, down and to the right."""
    return np.roll(picture, (3, 3), (0, 1))


def blurred(picture: np.ndarray) -> np.ndarray:
    """A picture blurred by a Gaussian of one pixel."""
    return ndimage.gaussian_filter(picture, (1, 1, *[0] * (picture.ndim - 2)))


CHANGES: dict[str, Change] = {
    "unchanged": lambda picture: picture,
    "rotated by 2 degrees": rotated,
    "shifted by 3 pixels": shifted,
    "blurred by 1 pixel": blurred,
}


def inner(picture: np.ndarray) -> np.ndarray:
    """A picture without its margin."""
    return picture[MARGIN:-MARGIN, MARGIN:-MARGIN]


def measured(split: Split, tolerate: ww.anomaly.Tolerance | None) -> dict[str, Any]:
    """Alarms among normal pictures after each change, and defects found in unchanged pictures."""
    start = time.process_time()
    model = ww.AnomalyDetector(tolerate=tolerate).fit([inner(x) for x in split.fitted])
    row: dict[str, Any] = {"processor seconds of fit": round(time.process_time() - start, 1)}
    threshold = model.threshold_.value
    for odd in (False, True):
        pictures = [x for x, o in zip(split.pictures, split.odd, strict=True) if o == odd]
        for name, change in CHANGES.items():
            found = -model.score_samples([inner(change(x)) for x in pictures])
            row[f"{'recall' if odd else 'false alarms'}, {name}"] = rate(found > threshold)
            if name == "unchanged":
                row[f"scores {odd}"] = found
    truth = np.repeat([False, True], [len(row["scores False"]), len(row["scores True"])])
    scores = np.concatenate([row.pop("scores False"), row.pop("scores True")])
    return {"image": round(auroc(truth, scores), 4), **row}


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive")
    parser.add_argument("--tiles")
    parser.add_argument("--sets", default="solar-mono;solar-poly;screws")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    tiles = read_tiles(arguments.tiles) if arguments.tiles else []
    names = [name for name in arguments.sets.split(";") if name] + ["tiles"] * bool(tiles)
    for seed in range(arguments.splits):
        for name in names:
            key = f"{name}, split {seed}"
            if key in results:
                continue
            if name == "tiles":
                split = fold_of_tiles(tiles, seed)
            else:
                split = split_set(zipfile.ZipFile(arguments.archive), name, seed)
            tolerance = ww.anomaly.Tolerance(rotation=2, shift=4, blur=1)
            results[key] = {
                "default": measured(split, None),
                "tolerant": measured(split, tolerance),
            }
            arguments.out.write_text(json.dumps(results, indent=1) + "\n")
            print(key, json.dumps(results[key]), flush=True)


if __name__ == "__main__":
    main()
