"""Draw the pictures of howto/pooling.md:  python docs/pooling_pictures.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.nn import functional as F

IMAGES = Path(__file__).parent / "images"


def weights(mu: tuple[float, float], gamma: float, size: int) -> Tensor:
    """w of one region: what unpooling makes of a feature of 1."""
    where = ww.PoolingParams(torch.tensor(mu).view(1, 2, 1, 1, 1), torch.full((1, 2, 1, 1, 1), gamma))
    return F.gaussian_unpool2d(torch.ones(1, 1, 1, 1), where, size)[0, 0]


def draw_weights() -> None:
    """One Gaussian from sum pooling to max pooling."""
    gammas = (0.0, 0.2, 1.0, 4.0, 1e4)
    figure, axes = plt.subplots(1, len(gammas), figsize=(9, 2.2))
    for axis, gamma in zip(axes, gammas, strict=True):
        axis.imshow(weights((-0.5, 0.5), gamma, 4), vmin=0, vmax=1, cmap="gray_r")
        axis.plot(2.0, 1.0, "r+")  # μ, in the coordinates of the picture
        axis.set(title=f"γ = {gamma:g}", xticks=[], yticks=[])
    figure.savefig(IMAGES / "pooling_weights.png", dpi=120, bbox_inches="tight")


def draw_there_and_back() -> None:
    """Digits pooled 4 × 4 and unpooled: by switches, by Gaussians, and spread evenly."""
    z = ww.data.load("digits", split="test")[[3, 8, 11, 23]]
    largest, switches = torch.nn.functional.max_pool2d(z, 4, return_indices=True)
    p, where = F.gaussian_pool2d_with_where(z, 4)
    mean = torch.nn.functional.avg_pool2d(z, 4)
    rows = {
        "image": z,
        "max pooling\nand its switches": torch.nn.functional.max_unpool2d(largest, switches, 4),
        "Gaussian pooling\nand its Gaussians": F.gaussian_unpool2d(p, where, 4),
        "average,\nspread evenly": torch.nn.functional.interpolate(mean, scale_factor=4),
    }
    figure, axes = plt.subplots(len(rows), len(z), figsize=(6.4, 6))
    for line, (name, pictures) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture[0], cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        error = (pictures - z).square().mean().sqrt()
        line[-1].text(29, 14, f"rms error {error:.2f}" if error else "", va="center")
    figure.savefig(IMAGES / "pooling_there_and_back.png", dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    draw_weights()
    draw_there_and_back()
