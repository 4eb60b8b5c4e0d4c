"""Draw the picture of howto/anomaly.md:  python docs/anomaly_pictures.py magnetic-tiles.zip

The least normal tile with a defect of each kind, of the validation part, and maps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import whatwhere as ww

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
from reproduction.studies.anomaly_tiles import KINDS, parts_of, read_tiles  # noqa: E402


def main(path: str) -> None:
    parts = parts_of(read_tiles(path))
    detector = ww.AnomalyDetector().fit([p["pixels"] for p in parts["fit"]][::3])
    shown = []
    for kind in KINDS:
        odd = [p for p in parts["validation"] if p["kind"] == kind]
        shown.append(odd[int(detector.score_samples([p["pixels"] for p in odd]).argmin())])
    threshold = detector.threshold_.value
    figure, axes = plt.subplots(1, len(KINDS), figsize=(9, 2.6), layout="constrained")
    maps = detector.anomaly_map([p["pixels"] for p in shown])
    for axis, picture, heat in zip(axes, shown, maps, strict=True):
        axis.imshow(picture["pixels"], cmap="gray")
        alpha = ((heat - threshold) / 2).clip(0, 0.7)
        drawn = axis.imshow(heat, cmap="Reds", alpha=alpha, vmin=threshold, vmax=threshold + 2)
        axis.contour(picture["mask"], [0.5], colors="#ffd400", linewidths=0.8)
        axis.set(xticks=[], yticks=[], title=picture["kind"])
    figure.colorbar(drawn, ax=axes, shrink=0.7)
    figure.savefig(DOCS / "images" / "anomaly.png", dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
