"""Draw the pictures of docs/howto/restoration.md and one of the README:  python
docs/restoration_pictures.py

Needs scikit-image.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import skimage.data
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image

import whatwhere as ww

IMAGES = Path(__file__).parent / "images"
GAP = 6  # white pixels between two pictures
HEADING = 24  # pixels above them


def side_by_side(pictures: dict[str, torch.Tensor], file: Path) -> None:
    """Pictures [1, 3, H, W] in a row, twice as large, each below its name."""
    white = torch.ones(1, 3, next(iter(pictures.values())).shape[2], GAP)
    row = [part for picture in pictures.values() for part in (picture, white)][:-1]
    pixels = torch.cat(row, 3)[0].clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).numpy()
    small = Image.fromarray(pixels)
    large = small.resize((2 * small.width, 2 * small.height), Image.Resampling.NEAREST)
    sheet = Image.new("RGB", (large.width, large.height + HEADING), "white")
    sheet.paste(large, (0, HEADING))
    font = ImageFont.load_default(16)
    left = 0
    for name, picture in pictures.items():
        width = 2 * picture.shape[3]
        ImageDraw.Draw(sheet).text((left + width / 2, 2), name, "#222222", font, anchor="ma")
        left += width + 2 * GAP
    sheet.save(file, optimize=True)


def noise_line() -> None:
    """Six crops of a photograph with the noise of photons: their variance against brightness."""
    random = np.random.default_rng(0)
    photograph = load_sample_image("flower.jpg").mean(2)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(6):
            crop = photograph[200:328, 90 * number : 90 * number + 128]
            noisy = random.poisson(crop / 4) * 4  # a photon adds 4 of 255
            pixels = noisy.clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(Path(folder) / f"{number}.png")
        command = ["whatwhere", "denoise", folder, "--out", f"{folder}/clean", "--alike"]
        subprocess.run(
            [*command, "--draw-noise", str(IMAGES / "noise-line.png"), "--overwrite"], check=True
        )


def main() -> None:
    noise_line()
    random = torch.Generator().manual_seed(0)
    denoiser = ww.restoration.load_denoiser()
    pixels = skimage.data.chelsea()[60:188, 120:248]
    truth = torch.from_numpy(pixels / 255.0).permute(2, 0, 1)[None].float()
    noisy = truth + 25 / 255 * torch.randn(truth.shape, generator=random)
    restored = ww.restoration.denoise(noisy, denoiser)
    side_by_side({"noisy": noisy, "restored": restored, "original": truth}, IMAGES / "denoise.png")
    known = (torch.rand(1, 1, 128, 128, generator=random) > 0.8).float()
    filled = ww.restoration.inpaint(truth * known, known, denoiser)
    shown = {"known pixels": truth * known, "filled in": filled, "original": truth}
    side_by_side(shown, IMAGES / "inpaint.png")
    eye = (..., slice(20, 84), slice(0, 64))
    shown = {
        "noisy": noisy,
        "restored": restored,
        "known pixels": truth * known,
        "filled in": filled,
    }
    side_by_side({name: image[eye] for name, image in shown.items()}, IMAGES / "use-restore.png")


if __name__ == "__main__":
    main()
