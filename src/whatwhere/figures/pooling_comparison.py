"""Two models side by side on the same images (paper, Fig. maxgauss): where max pooling cuts strokes at its regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.decomposition import coloured, take_apart
from whatwhere.figures.style import GREY, PAGE, RULE, frame, place, sheet, styled, title, write
from whatwhere.figures.tiles import picture
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


@dataclass(frozen=True)
class Rendering:
    """What one model makes of the images: the reconstructions, their mean squared error, the features in use.

    v_hat [N, C, H, W]; error and nonzeros per image on average
    """

    v_hat: Tensor
    error: float
    nonzeros: float


def render(model: DeconvNet, images: Tensor, latents: Latents) -> Rendering:
    """Reconstruct the images [N, C, H, W] and measure how well and with how much."""
    assert latents.p is not None
    v_hat = model.reconstruct(latents.p, model.weights(latents.pooling_params, *images.shape[2:]))
    error = float((v_hat - images).square().mean())
    return Rendering(v_hat, error, float((latents.p != 0).flatten(1).sum(1).double().mean()))


@styled
def pooling_comparison(images: Tensor, solved: Mapping[str, tuple[DeconvNet, Latents]]) -> Figure:
    """For each model, named, the reconstructions of the same images [N, C, H, W], in grey and by feature."""
    n, left = len(images), 0.95
    cell = (PAGE - left) / n - 0.04
    pitch = cell + 0.04
    rows = 1 + 2 * len(solved)
    figure = sheet(PAGE, rows * pitch + 0.12 * len(solved) + 0.02)
    limit, y = max(1.0, float(images.max())), 0.01

    def draw(pictures: list[np.ndarray] | np.ndarray) -> None:
        for i, shown in enumerate(pictures):
            axes = place(figure, left + i * pitch, y, cell, cell)
            axes.imshow(shown)
            frame(axes, RULE, 0.6)

    title(figure, 0, y + cell / 2 - 0.05, "input")
    draw(picture(images, limit))
    for name, (model, latents) in solved.items():
        assert latents.p is not None
        y += pitch + 0.12
        made = render(model, images, latents)
        title(figure, 0, y + 0.04, name)
        facts = f"squared error {made.error:.4f}\nnon-zeros {made.nonzeros:.0f}"
        write(figure, 0, y + 0.22, facts, color=GREY, fontsize=6, linespacing=1.5)
        draw(picture(made.v_hat.clamp(min=0), limit))
        y += pitch
        parts = [take_apart(model, latents[i : i + 1], *images.shape[2:]) for i in range(n)]
        write(figure, 0, y + 0.04, "by feature", color=GREY, fontsize=6)
        draw([coloured(one, latents.p.shape[1], limit) for one in parts])
    return figure
