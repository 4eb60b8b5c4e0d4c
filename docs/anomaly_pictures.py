"""Draw the picture of howto/anomaly.md:  python docs/anomaly_pictures.py magnetic-tiles.zip

A tile with a defect of each kind, drawn at random from a fold that the detector was not fitted to,
the same tile with its map, and the defect.

With the maps of two versions, which `benchmarks/defects/maps.py` finds, draw the picture of
results/defects.md:  python docs/anomaly_pictures.py defects.zip before.npz now.npz
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import whatwhere as ww

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
from benchmarks.defects.anomaly_tiles import KINDS, Picture, read_tiles  # noqa: E402
from benchmarks.defects.maps import draw  # noqa: E402
from benchmarks.defects.tile_folds import folds_of, normal_pictures  # noqa: E402

FOLD = 0  # that is drawn from
SEED = 0
STRONGEST = 2.0  # units above the outline where the red is strongest


def drawn_tiles(pictures: list[Picture], fold: np.ndarray) -> list[Picture]:
    """A tile of each kind of defect, at random from the fold."""
    generator = np.random.default_rng(SEED)
    inside = [p for p, k in zip(pictures, fold, strict=True) if k == FOLD]
    by_kind = [[p for p in inside if p["kind"] == kind] for kind in KINDS]
    return [some[generator.integers(len(some))] for some in by_kind]


def main(path: str) -> None:
    pictures = read_tiles(path)
    fold = folds_of(pictures)
    normal = normal_pictures(pictures, fold, {FOLD})
    detector = ww.AnomalyDetector().fit([pictures[n]["pixels"] for n in normal])
    shown = drawn_tiles(pictures, fold)
    outline = detector.outline_
    maps = detector.anomaly_map([p["pixels"] for p in shown])
    scores = -detector.decision_function([p["pixels"] for p in shown])
    figure, axes = plt.subplots(2, len(KINDS), figsize=(9, 4.6), layout="constrained")
    for column, picture, heat, score in zip(axes.T, shown, maps, scores, strict=True):
        for axis in column:
            axis.imshow(picture["pixels"], cmap="gray")
            axis.set(xticks=[], yticks=[])
        column[0].set_title(picture["kind"])
        column[0].contour(picture["mask"], [0.5], colors="#ffd400", linewidths=1.0)
        alpha = ((heat - outline) / STRONGEST).clip(0, 0.7)
        column[1].imshow(heat, cmap="Reds", alpha=alpha, vmin=outline, vmax=outline + STRONGEST)
        column[1].set_xlabel(f"{score:+.1f}")
    figure.savefig(DOCS / "images" / "anomaly.png", dpi=110)


def before_and_now(path: str, before: str, now: str) -> None:
    with zipfile.ZipFile(path) as archive:
        draw(archive, before, now, DOCS / "images" / "defects-before-now.webp")


if __name__ == "__main__":
    (main if len(sys.argv) == 2 else before_and_now)(*sys.argv[1:])
