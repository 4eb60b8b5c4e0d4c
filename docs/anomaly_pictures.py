"""Draw the picture of howto/anomaly.md:  python docs/anomaly_pictures.py  (needs scikit-image)."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import whatwhere as ww
from whatwhere.cli.anomaly import overlay

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "benchmarks"))
from anomaly_textures import NORMAL, damage, tiles  # noqa: E402

COLUMNS, UNKNOWN = 9, 7


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The least normal test digits of a detector that knows all but one class, and their maps."""
    known, test = ww.data.load("digits"), ww.data.load("digits", split="test")
    assert known.labels is not None
    detector = ww.AnomalyDetector(ww.load("mnist")).fit(known[known.labels != UNKNOWN][:800])
    images = test[:100]
    scores, maps = detector.decision_and_map(images)
    worst = scores.argsort()[:COLUMNS].copy()
    return images[worst].numpy()[:, 0], np.asarray(maps[worst])


def textures() -> tuple[np.ndarray, np.ndarray]:
    """Bricks with a defect each, and the maps of a detector that saw bricks without."""
    images, _ = damage(tiles("brick", 1, COLUMNS, 10), 11)
    model = ww.load("photographs")
    detector = ww.AnomalyDetector(model, aligned=False).fit(tiles("brick", 0, NORMAL, 12)[:, None])
    return images, np.asarray(detector.anomaly_map(images[:, None]))


def main() -> None:
    figure, axes = plt.subplots(4, COLUMNS, figsize=(9, 4.1), layout="constrained")
    for top, (name, (images, maps)) in zip((0, 2), {"digits": digits(), "bricks": textures()}.items(), strict=True):
        axes[top, 0].set_ylabel(name, fontsize=9)
        for n, (image, heat) in enumerate(zip(images, maps, strict=True)):
            axes[top, n].imshow(image, cmap="gray")
            axes[top + 1, n].imshow(overlay(torch.from_numpy(image)[None], torch.from_numpy(heat)))
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    figure.savefig(DOCS / "images" / "anomaly.png", dpi=110)


if __name__ == "__main__":
    main()
