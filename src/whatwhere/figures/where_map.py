"""The Gaussians of features, drawn as ellipses: those of one feature over many images in their pooling regions."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.activations import Gaussians, gaussians, pixel_to_map
from whatwhere.figures.style import COLUMN, CURVES, GREY, RULE, add_frame, add_heading, add_panel, styled
from whatwhere.figures.tiles import image_to_rgb, is_ink
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


@styled
def where_map(model: DeconvNet, images: Tensor, latents: Latents, layer: int, feature: int, *, seed: int = 0) -> Figure:
    """The Gaussians of one feature on the grid of pooling regions, over the mean image.

    model    the model
    images   [N, C, H, W]
    latents  of the images
    layer    from 1
    feature  its index in the layer, from 0
    seed     of the choice of Gaussians, if there are many

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> latents = ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=10)).latents
    >>> figure = ww.figures.where_map(model, images, latents, layer=1, feature=4)
    """
    active, spec = gaussians(model, images, latents, layer, feature, seed=seed), model.spec.layers[layer - 1]
    _, rows, columns = model.at(*images.shape[2:]).regions[layer - 1].grid
    down, right = spec.strides
    height, width = ((rows - 1) * down + spec.pool_shape[0], (columns - 1) * right + spec.pool_shape[1])
    figure = Figure(figsize=(COLUMN, COLUMN * height / width + 0.26))
    heading = f"Positions of feature {feature + 1} of layer {layer}: {len(active)} Gaussians"
    add_heading(figure, 0, 0.03, heading)
    axes = add_panel(figure, 0.02, 0.22, COLUMN - 0.04, COLUMN * height / width)

    (top, bottom), (left, end) = (
        [scale * (edge - 0.5) + offset for edge in (0, side)]
        for side, (scale, offset) in zip(images.shape[2:], (pixel_to_map(model, layer, a) for a in (0, 1)), strict=True)
    )
    mean = image_to_rgb(images.mean(0), ink=is_ink(images))
    axes.imshow(mean, extent=(left, end, bottom, top), alpha=0.18, aspect="auto")
    axes.set_xlim(-0.5, width - 0.5)  # half an element beyond the first and last elements of the regions
    axes.set_ylim(height - 0.5, -0.5)
    axes.vlines(np.arange(1, columns) * right - 0.5, -0.5, height - 0.5, color=RULE, lw=0.5)
    axes.hlines(np.arange(1, rows) * down - 0.5, -0.5, width - 0.5, color=RULE, lw=0.5)
    draw_ellipses(axes, active, CURVES[0], fill=0.14, edge=0.56)
    add_frame(axes, GREY, 0.6)
    return figure


def draw_ellipses(axes: Axes, active: Gaussians, colour: Any, *, fill: float = 0.0, edge: float = 1.0) -> None:
    """An ellipse for each Gaussian, as wide as two standard deviations; `fill` and `edge` are opacities."""
    axes.add_collection(
        EllipseCollection(
            2 * active.sigma[:, 0],
            2 * active.sigma[:, 1],
            np.zeros(len(active)),
            units="xy",
            offsets=active.centre,
            offset_transform=axes.transData,
            facecolors=to_rgba(colour, fill),
            edgecolors=to_rgba(colour, edge),
            linewidths=0.5,
        )
    )
