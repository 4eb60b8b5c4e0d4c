"""A folder of 60 mixed pictures: cells at random places, and textures; errors with few labels.

    python -m benchmarks.labels.mixed_folder DATA --out FILE.json

DATA holds `steel-surfaces.zip` and `blood-cells.zip`. Ten pictures each of three kinds of cells,
placed anywhere in a frame of the colour around them, and of three kinds of steel surfaces, grey,
64 × 64. Several such folders are drawn. A model learns from each folder, its rows are those of
`ww.Labelling`. Errors and confidence in % of the pictures without a label, ten draws of labels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from benchmarks.labels.any_folder import DRAWS, calibration_error, draw
from benchmarks.labels.any_folder_rows import Pictures, own_rows, unzip

EACH = 10
SIDE = 64
CELL = 28  # side of a cell
FOLDERS = 3
SURFACES = ("patches", "rolled-in_scale", "scratches")


def cell(picture: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """A cell [1, H, W] at a random place of a larger frame."""
    small = F.interpolate(picture[None], (CELL, CELL), mode="area")[0]
    around = torch.cat([small[:, 0], small[:, -1], small[:, :, 0], small[:, :, -1]], 1)
    frame = around.median().expand(1, SIDE, SIDE).clone()
    top, left = generator.integers(0, SIDE - CELL + 1, size=2)
    frame[:, top : top + CELL, left : left + CELL] = small
    return frame


def surface(picture: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """A part [1, H, W] of a picture of a surface."""
    top, left = generator.integers(0, picture.shape[1] - SIDE + 1, size=2)
    return picture[:, top : top + SIDE, left : left + SIDE]


def mixed(data: Path, seed: int) -> Pictures:
    """The pictures of a folder, and their classes."""
    generator = np.random.default_rng(seed)
    pictures = []
    names = []
    for file, place in (("blood-cells.zip", cell), ("steel-surfaces.zip", surface)):
        images = ww.data.load(unzip(data / file))
        labels = np.asarray(images.labels)
        for number, name in enumerate(images.classes):
            if place is surface and name not in SURFACES:
                continue
            for row in generator.permutation(np.flatnonzero(labels == number))[:EACH]:
                grey = torch.as_tensor(images[int(row) : int(row) + 1])[0].float().mean(0)[None]
                pictures.append(place(grey, generator))
                names.append(name)
    return Pictures(torch.stack(pictures), np.array(names))


def errors_of_draw(
    graph: ww.GraphClassifier, rows: np.ndarray, y: np.ndarray, chosen: np.ndarray
) -> dict[str, float]:
    rest = np.setdiff1d(np.arange(len(y)), chosen)
    given = np.full(len(y), -1)
    given[chosen] = y[chosen]
    graph.refit(given)
    shares = graph.label_distributions_
    nearest = y[chosen][(rows[rest] @ rows[chosen].T).argmax(1)]
    return {
        "graph": 100 * float(np.mean(shares[rest].argmax(1) != y[rest])),
        "nearest": 100 * float(np.mean(nearest != y[rest])),
        "confidence": 100 * float(shares[rest].max(1).mean()),
        "calibration": 100 * calibration_error(shares[rest], y[rest]),
        "largest class": float(np.bincount(shares.argmax(1)).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for seed in range(FOLDERS):
        pictures = mixed(options.data, seed)
        rows, why = own_rows(pictures)
        _, y = np.unique(pictures.labels, return_inverse=True)
        graph = ww.GraphClassifier().fit(rows, y)
        found: dict[str, Any] = {"why": why}
        for per_class in (1, 3):
            draws = [draw(y, per_class, each, True) for each in range(DRAWS)]
            each = [errors_of_draw(graph, rows, y, chosen) for chosen in draws]
            found[f"{per_class} a class"] = {
                name: [round(one[name], 2) for one in each] for name in each[0]
            }
        results[f"folder {seed}"] = found
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
