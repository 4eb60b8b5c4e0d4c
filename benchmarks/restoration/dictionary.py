"""Where a dictionary of the picture itself is better than the denoiser:  python -m
benchmarks.restoration.dictionary

Mean PSNR in dB at σ = 15, 25 and 50 of 255 on pictures that are made here: of the denoiser, and of
`RestorationSpec(learn=True)`. docs/howto/restoration.md has the result.
"""

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

import whatwhere as ww

SIDE = 140


def pictures() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    page = Image.new("L", (SIDE, SIDE), 255)
    for line in range(11):
        ImageDraw.Draw(page).text((3, 3 + 12 * line), f"Sparse layered codes {line}", fill=0)
    phase = random.normal(0, 0.06, (2, SIDE, SIDE))
    spots = zip(
        SIDE * random.random(60), SIDE * random.random(60), 5 + 40 * random.random(60), strict=True
    )
    digits = ww.data.load("digits", split="test")[:25].numpy()
    return {
        "text": np.asarray(page) / 255,
        "waves": 0.5 + 0.4 * np.sin(x / 1.6 + phase[0].cumsum(0) + phase[1].cumsum(1)),
        "checkerboard": ((x // 3 + y // 5) % 2).astype(float),
        "spots": 0.1
        + 0.7 * sum(np.exp(-((x - a) ** 2 + (y - b) ** 2) / s) for a, b, s in spots).clip(0, 1),
        "digits": digits.reshape(5, 5, 28, 28).transpose(0, 2, 1, 3).reshape(SIDE, SIDE),
    }


def psnr(result: Tensor, truth: Tensor) -> float:
    return -10 * float((result.clamp(0, 1) - truth).square().mean().log10())


def main() -> None:
    denoiser, learn = ww.restoration.load_denoiser(), ww.restoration.RestorationSpec(learn=True)
    for name, picture in pictures().items():
        truth, rows = torch.from_numpy(np.ascontiguousarray(picture)).float()[None, None], []
        for sigma in (15 / 255, 25 / 255, 50 / 255):
            noisy = truth + sigma * torch.randn(
                truth.shape, generator=torch.Generator().manual_seed(0)
            )
            results = [
                ww.restoration.denoise(noisy, denoiser, sigma, spec=spec) for spec in (None, learn)
            ]
            rows.append([psnr(result, truth) for result in results])
        print(name, *("/".join(f"{row[way]:.1f}" for row in rows) for way in (0, 1)), flush=True)


if __name__ == "__main__":
    main()
