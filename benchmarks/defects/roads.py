"""Crops of photographs of roads with and without a crack, as a set for `unseen.py`.

    python -m benchmarks.defects.roads CrackForest-dataset/ roads.zip

Reads a clone of cuilimeng/CrackForest-dataset (Shi et al. 2016, research use): 118 photographs of
480 × 320 pixels, each cut into six squares. Squares without a pixel of a crack are good, those with
at least 60 bad; the others are left out. 150 good and 100 bad ones are drawn.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import loadmat

SIDE = 160  # pixels of a crop
FEWEST = 60  # pixels of a crack
DRAWN = {"good": 150, "bad": 100}
Crop = tuple[str, Image.Image, np.ndarray]


def crops_of(folder: Path, number: int) -> list[Crop]:
    """Name, picture and mask of each crop of a photograph."""
    picture = Image.open(folder / "image" / f"{number:03d}.jpg").convert("RGB")
    truth = loadmat(folder / "groundTruth" / f"{number:03d}.mat")["groundTruth"]
    mask = truth["Segmentation"][0, 0] > 1
    found = []
    for row in range(2):
        for column in range(3):
            box = (SIDE * column, SIDE * row, SIDE * (column + 1), SIDE * (row + 1))
            part = mask[box[1] : box[3], box[0] : box[2]]
            if part.shape == (SIDE, SIDE):
                found.append((f"p{number:03d}_{row}{column}", picture.crop(box), part))
    return found


def main() -> None:
    """Write the archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    crops = [crop for number in range(1, 119) for crop in crops_of(arguments.folder, number)]
    parts = {
        "good": [crop for crop in crops if not crop[2].any()],
        "bad": [crop for crop in crops if crop[2].sum() >= FEWEST],
    }
    generator = np.random.default_rng(0)
    with zipfile.ZipFile(arguments.out, "w") as archive:
        for part, listed in parts.items():
            for n in sorted(generator.permutation(len(listed))[: DRAWN[part]]):
                name, picture, mask = listed[n]
                data = io.BytesIO()
                picture.save(data, "jpeg", quality=92)
                archive.writestr(f"roads/{part}/{name}.jpg", data.getvalue())
                if part == "bad":
                    data = io.BytesIO()
                    Image.fromarray((255 * mask).astype(np.uint8)).save(data, "png")
                    archive.writestr(f"roads/masks/{name}.png", data.getvalue())


if __name__ == "__main__":
    main()
