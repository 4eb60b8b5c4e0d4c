"""Maps of defects on ball screws by two versions of the detector, side by side.

    PYTHONPATH=OLD/src python -m benchmarks.defects.maps defects.zip before.npz
    python -m benchmarks.defects.maps defects.zip now.npz
    python docs/anomaly_pictures.py defects.zip before.npz now.npz

Both learn from the first 60 normal pictures in the order of a seed, and score six with pits, drawn
by the same seed. The file uses nothing but the public names, so that it runs with old versions.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np

LEARNED = 60
SHOWN = 6


def read(archive: zipfile.ZipFile, folder: str) -> dict[str, np.ndarray]:
    """Pictures of a folder by their names."""
    from PIL import Image

    found = {}
    for file in sorted(archive.namelist()):
        if file.startswith(f"screws/{folder}/") and not file.endswith("/"):
            name = file.rpartition("/")[2].rpartition(".")[0]
            found[name] = np.asarray(Image.open(io.BytesIO(archive.read(file))))
    return found


def names_of(archive: zipfile.ZipFile) -> tuple[list[str], list[str]]:
    """Normal pictures to learn from, and pictures with pits."""
    generator = np.random.default_rng(0)
    good = generator.permutation(sorted(read(archive, "good")))[:LEARNED]
    bad = generator.permutation(sorted(read(archive, "bad")))[:SHOWN]
    return sorted(good), sorted(bad)


def find(archive: zipfile.ZipFile, out: str) -> None:
    """Write the maps and the value at which a place is outlined."""
    import torch

    import whatwhere as ww

    def tensor(picture: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255

    good, bad = names_of(archive)
    pictures = {part: read(archive, part) for part in ("good", "bad")}
    model = ww.AnomalyDetector().fit([tensor(pictures["good"][n]) for n in good])
    maps = model.anomaly_map([tensor(pictures["bad"][n]) for n in bad])
    # before outlines were a share of the area, they were at the threshold of scores
    outline = getattr(model, "outline_", model.threshold_.value)
    np.savez(out, outline=outline, **dict(zip(bad, maps, strict=True)))


def draw(archive: zipfile.ZipFile, before: str, now: str, out: Path) -> None:
    """Draw the pits that experts marked, and the maps and the outlines of both versions."""
    import matplotlib.pyplot as plt

    _, bad = names_of(archive)
    pictures, masks = read(archive, "bad"), read(archive, "masks")
    versions = [np.load(before), np.load(now)]
    figure, axes = plt.subplots(SHOWN, 3, figsize=(9, 7.6), layout="constrained")
    for title, axis in zip(("pits, marked by experts", "before", "now"), axes[0], strict=True):
        axis.set_title(title, fontsize=10)
    for name, row in zip(bad, axes, strict=True):
        for axis in row:
            axis.imshow(pictures[name])
            axis.set(xticks=[], yticks=[])
        row[0].contour(masks[name] > 127, [0.5], colors="cyan", linewidths=1.0)
        for axis, found in zip(row[1:], versions, strict=True):
            heat = found[name]
            axis.imshow(heat, cmap="Reds", alpha=0.5, vmin=np.median(heat))
            inside = heat > float(found["outline"])
            if inside.any() and not inside.all():
                axis.contour(inside, [0.5], colors="#ffd400", linewidths=1.2)
    figure.savefig(out, dpi=80)


if __name__ == "__main__":
    with zipfile.ZipFile(sys.argv[1]) as opened:
        find(opened, sys.argv[2])
