"""A folder as people have them: 63 pictures of mixed sizes, colours and depths, and files that are
no pictures."""

from pathlib import Path

import numpy as np
from PIL import Image

KINDS = ("spots", "stripes", "shapes")


def make_folder(folder: Path, count: int = 63, side: int = 48, labelled: bool = False) -> Path:
    """Write the pictures, in sub-folders of their kind if they are labelled; about a third of each
    kind.

    One in four is grey, one in eight has 16 bits of which it uses 12, and one file has two pages.
    """
    rng = np.random.default_rng(0)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        place = folder / kind if labelled else folder
        place.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(side, side + 1 + side // 3, 2)
        pixels = draw(kind, int(height), int(width), rng)
        name = f"{kind}-{number:02d}"
        if number == count - 2:
            pages = [as_bytes(pixels), as_bytes(1 - pixels)]
            pages[0].save(place / f"{name}.tif", save_all=True, append_images=pages[1:])
        elif number % 8 == 5:
            Image.fromarray((pixels.mean(2) * 4095).astype(np.uint16)).save(place / f"{name}.tif")
        elif number % 4 == 0:
            as_bytes(pixels).convert("L").save(place / f"{name}.png")
        else:
            as_bytes(pixels).save(place / f"{name}.jpg", quality=92)
    (place / "notes.txt").write_text("where and when\n")
    (place / "empty.png").write_bytes(b"")
    whole = next(place.glob("*.jpg")).read_bytes()
    (place / "broken.jpg").write_bytes(whole[: len(whole) // 3])
    return folder


def draw(kind: str, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A picture [H, W, 3] in [0, 1] of one kind, with a little noise."""
    y, x = np.mgrid[:height, :width] / min(height, width)
    ground, colour = rng.uniform(0.1, 0.4, 3), rng.uniform(0.6, 1, 3)
    if kind == "spots":
        form = sum(
            np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.004)
            for cx, cy in rng.uniform(0, 1.2, (9, 2))
        )
    elif kind == "stripes":
        angle = rng.uniform(0, np.pi)
        form = 0.5 + 0.5 * np.sin(40 * (x * np.cos(angle) + y * np.sin(angle)))
    else:
        cx, cy = rng.uniform(0.3, 0.7, 2)
        form = np.maximum(abs(x - cx), abs(y - cy)) < rng.uniform(0.15, 0.3)
    share = np.clip(form, 0, 1)[..., None]
    noisy = ground + share * (colour - ground) + 0.02 * rng.standard_normal((height, width, 3))
    return np.clip(noisy, 0, 1)


def as_bytes(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray((255 * pixels).round().astype(np.uint8))
