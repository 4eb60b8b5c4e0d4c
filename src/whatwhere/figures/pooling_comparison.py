"""Reconstructions of the same images by several models (paper, Fig. maxgauss).

With max pooling, strokes break where pooling regions meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.decomposition import colour_by_feature, decompose
from whatwhere.figures.style import GREY, PAGE, RULE, add_frame, add_panel, add_text, add_title, new_figure, styled
from whatwhere.figures.tiles import image_to_rgb
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


@dataclass(frozen=True)
class Rendering:
    """Reconstructions of images by one model.

    v_hat      [N, C, H, W]
    error      mean squared error per pixel
    nonzeros   mean number of non-zero features per image
    """

    v_hat: Tensor
    error: float
    nonzeros: float


def render(model: DeconvNet, images: Tensor, latents: Latents) -> Rendering:
    """Reconstruct the images [N, C, H, W], and measure the error and the number of non-zero features."""
    assert latents.p is not None
    v_hat = model.at(*images.shape[2:]).decode(latents)
    error = float((v_hat - images).square().mean())
    return Rendering(v_hat, error, float((latents.p != 0).flatten(1).sum(1).double().mean()))


@styled
def pooling_comparison(images: Tensor, solutions: Mapping[str, tuple[DeconvNet, Latents]]) -> Figure:
    """Reconstructions of the same images by several models: two rows for each, in grey, and coloured by feature.

    images     [N, C, H, W]
    solutions  name → model and latents

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> latents = ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=10)).latents
    >>> figure = ww.figures.pooling_comparison(images, {"mnist": (model, latents)})
    """
    n, left = len(images), 0.95
    cell = (PAGE - left) / n - 0.04
    pitch = cell + 0.04
    rows = 1 + 2 * len(solutions)
    figure = new_figure(PAGE, rows * pitch + 0.12 * len(solutions) + 0.02)
    limit, y = max(1.0, float(images.max())), 0.01

    def draw(pictures: list[np.ndarray] | np.ndarray) -> None:
        for i, rgb in enumerate(pictures):
            axes = add_panel(figure, left + i * pitch, y, cell, cell)
            axes.imshow(rgb)
            add_frame(axes, RULE, 0.6)

    add_title(figure, 0, y + cell / 2 - 0.05, "input")
    draw(image_to_rgb(images, limit))
    for name, (model, latents) in solutions.items():
        assert latents.p is not None
        y += pitch + 0.12
        rendering = render(model, images, latents)
        add_title(figure, 0, y + 0.04, name)
        facts = f"squared error {rendering.error:.4f}\nnon-zeros {rendering.nonzeros:.0f}"
        add_text(figure, 0, y + 0.22, facts, color=GREY, fontsize=6, linespacing=1.5)
        draw(image_to_rgb(rendering.v_hat.clamp(min=0), limit))
        y += pitch
        contributions = [decompose(model, latents[i : i + 1], *images.shape[2:]) for i in range(n)]
        add_text(figure, 0, y + 0.04, "by feature", color=GREY, fontsize=6)
        draw([colour_by_feature(image, latents.p.shape[1], limit) for image in contributions])
    return figure
