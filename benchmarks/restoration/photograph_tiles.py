"""Tiles of photographs with a free licence, from files that installed packages carry: what
`photographs` learns from.

    pip install 'whatwhere[photographs]'
    python -m benchmarks.restoration.photograph_tiles tiles.npy
    whatwhere train tiles.npy --recipe photographs --out runs/photographs

China and flower are of scikit-learn (CC BY 2.0), Grace Hopper of Matplotlib (US government), rocket
(public domain) and motorcycle (Middlebury stereo benchmark) of scikit-image. Nothing is taken from
the validation crops, nor from the pictures of scikit-image that results are reported on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

GREY = np.array([0.2125, 0.7154, 0.0721])
SIDE = 48
HELD_BACK = {
    "china": (120, 220),
    "flower": (130, 230),
    "motorcycle_left": (150, 300),
    "grace_hopper": (100, 150),
}
CROP = 192  # pixels of the validation crops that begin at these rows and columns


def picture_files() -> list[Path]:
    import matplotlib
    import skimage
    import sklearn

    learn, image = Path(sklearn.__file__).parent, Path(skimage.__file__).parent
    plot = Path(matplotlib.get_data_path())
    return [
        learn / "datasets" / "images" / "china.jpg",
        learn / "datasets" / "images" / "flower.jpg",
        plot / "sample_data" / "grace_hopper.jpg",
        image / "data" / "rocket.jpg",
        image / "data" / "motorcycle_left.png",
    ]


def read_grey(file: Path) -> np.ndarray:
    pixels = np.asarray(Image.open(file).convert("RGB")).astype(np.float64) / 255
    return (pixels @ GREY).astype(np.float32)


def cut_tiles(count: int, seed: int) -> np.ndarray:
    """Tiles [count, 1, SIDE, SIDE] at random places of random pictures, each in one of eight
    orientations."""
    random = np.random.default_rng(seed)
    pictures = {file.stem: read_grey(file) for file in picture_files()}
    areas = np.array([picture.size for picture in pictures.values()], float)
    tiles: list[np.ndarray] = []
    while len(tiles) < count:
        name = list(pictures)[random.choice(len(pictures), p=areas / areas.sum())]
        picture = pictures[name]
        top, left = (int(random.integers(0, side - SIDE + 1)) for side in picture.shape)
        if name in HELD_BACK and all(
            a - SIDE < b < a + CROP for a, b in zip(HELD_BACK[name], (top, left), strict=True)
        ):
            continue
        turns, mirrored = int(random.integers(4)), bool(random.integers(2))
        tile = np.rot90(picture[top : top + SIDE, left : left + SIDE], turns)
        tiles.append(tile.T if mirrored else tile)
    return np.stack(tiles)[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help=".npy file to write")
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    np.save(arguments.out, cut_tiles(arguments.count, arguments.seed))


if __name__ == "__main__":
    main()
