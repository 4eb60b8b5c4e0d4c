"""Draw the pictures of docs/howto/restoration.md and one of the README:  python
docs/restoration_pictures.py

Needs scikit-image.
"""

from __future__ import annotations

from pathlib import Path

import skimage.data
import torch
from PIL import Image

import whatwhere as ww

IMAGES = Path(__file__).parent / "images"
GAP = 6  # white pixels between two pictures


def side_by_side(pictures: list[torch.Tensor], file: Path) -> None:
    """Pictures [1, 3, H, W] in a row, twice as large."""
    white = torch.ones(1, 3, pictures[0].shape[2], GAP)
    row = [part for picture in pictures for part in (picture, white)][:-1]
    pixels = torch.cat(row, 3)[0].clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels)
    picture.resize((2 * picture.width, 2 * picture.height), Image.Resampling.NEAREST).save(
        file, optimize=True
    )


def main() -> None:
    random = torch.Generator().manual_seed(0)
    denoiser = ww.restoration.load_denoiser()
    pixels = skimage.data.chelsea()[60:188, 120:248]
    truth = torch.from_numpy(pixels / 255.0).permute(2, 0, 1)[None].float()
    noisy = truth + 25 / 255 * torch.randn(truth.shape, generator=random)
    restored = ww.restoration.denoise(noisy, denoiser)
    side_by_side([noisy, restored, truth], IMAGES / "denoise.png")
    known = (torch.rand(1, 1, 128, 128, generator=random) > 0.8).float()
    filled = ww.restoration.inpaint(truth * known, known, denoiser)
    side_by_side([truth * known, filled, truth], IMAGES / "inpaint.png")
    eye = (..., slice(20, 84), slice(0, 64))
    side_by_side(
        [image[eye] for image in (noisy, restored, truth * known, filled)],
        IMAGES / "use-restore.png",
    )


if __name__ == "__main__":
    main()
