"""The Gaussians of one feature over many images, drawn as ellipses in their pooling regions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.style import (
    CURVES,
    GREY,
    PAGE,
    RULE,
    add_frame,
    add_panel,
    add_text,
    add_title,
    new_figure,
    styled,
)
from whatwhere.figures.tiles import image_to_rgb, is_ink
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.ops.pooling import Regions
from whatwhere.spec import LayerSpec

MOST = 400  # Gaussians that are drawn of one feature
MAX_IN_ONE_REGION = 40  # Gaussians drawn on top of each other


@dataclass(frozen=True)
class Gaussians:
    """The Gaussians of one feature in the regions where it is active, [n] each; lengths are in elements of z.

    image, row, column   the region
    value                the feature p̂ in this region
    x, y                 the mean, relative to the centre of the region
    sigma_x, sigma_y     the standard deviations 1/√γ, at most half the region: wider Gaussians are almost flat
    """

    image: np.ndarray
    row: np.ndarray
    column: np.ndarray
    value: np.ndarray
    x: np.ndarray
    y: np.ndarray
    sigma_x: np.ndarray
    sigma_y: np.ndarray

    def __len__(self) -> int:
        return len(self.image)

    @property
    def widths(self) -> np.ndarray:
        """Two standard deviations along x and y, [n, 2]."""
        return 2 * np.column_stack([self.sigma_x, self.sigma_y])

    def on_map(self, spec: LayerSpec) -> np.ndarray:
        """The means on the map z of a layer, x and y, [n, 2]."""
        regions, means = np.column_stack([self.column, self.row]), np.column_stack([self.x, self.y])
        places: np.ndarray = regions * spec.stride + (spec.pool_size - 1) / 2 + means
        return places

    def first(self, count: int) -> Gaussians:
        return Gaussians(*(getattr(self, f.name)[:count] for f in fields(self)))


def gaussians(
    model: DeconvNet, images: Tensor, latents: Latents, layer: int, feature: int, *, seed: int = 0
) -> Gaussians:
    """The Gaussians of a feature of any layer up to that of the latents, in the regions where p̂ ≠ 0.

    Below the top layer, p̂ is the reconstruction from the layers above. If there are more than `MOST` Gaussians, a
    random subset is returned.
    """
    assert latents.p is not None
    sized = model.at(*images.shape[2:])
    p_hat = sized.reconstruct(latents.p, sized.weights(latents.pooling_params), to=layer)
    p = p_hat[:, feature].cpu().numpy()
    visible = np.argwhere(np.abs(p) > 0.05 * np.abs(p).max(initial=0))  # smaller values are invisible in the image
    chosen = np.random.default_rng([seed, layer, feature]).permutation(len(visible))[:MOST]
    image, row, column = visible[chosen].T
    theta = latents.pooling_params[layer - 1]
    mu = theta.mu[:, -2:, feature].cpu().numpy()[image, :, row, column]  # the last two axes of θ are rows and columns
    gamma = theta.gamma[:, -2:, feature].cpu().numpy()[image, :, row, column]
    flat = model.spec.layers[layer - 1].pool_size / 2
    with np.errstate(divide="ignore"):
        sigma = np.minimum(1 / np.sqrt(gamma), flat)
    return Gaussians(image, row, column, p[image, row, column], mu[:, 1], mu[:, 0], sigma[:, 1], sigma[:, 0])


@styled
def where_map(model: DeconvNet, images: Tensor, latents: Latents, layer: int, feature: int, *, seed: int = 0) -> Figure:
    """The Gaussians of one feature: left on the grid of regions, right some of them centred in one region.

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
    active = gaussians(model, images, latents, layer, feature, seed=seed)
    regions = model.at(*images.shape[2:]).regions[layer - 1]
    spec = model.spec.layers[layer - 1]
    side, small = 4.0, 2.5
    figure = new_figure(PAGE, side + 0.26)
    colour, size = CURVES[0], spec.pool_size

    add_title(figure, 0, 0.03, f"Positions of feature {feature + 1} of layer {layer}: {len(active)} Gaussians")
    axes = add_panel(figure, 0.02, 0.22, side, side)
    _draw_average(axes, model, images, layer)
    _draw_grid(axes, regions)
    _draw_ellipses(axes, active.on_map(spec), active.widths, colour, fill=0.14, edge=0.56)
    add_frame(axes, GREY, 0.6)

    left = side + 0.4
    add_title(figure, left, 0.03, f"{min(MAX_IN_ONE_REGION, len(active))} of them in one region")
    axes = add_panel(figure, left, 0.22, small, small)
    axes.set_xlim(-0.8 * size, 0.8 * size)
    axes.set_ylim(0.8 * size, -0.8 * size)
    edges = np.arange(size + 1) - size / 2
    axes.vlines(edges, edges[0], edges[-1], color=GREY, lw=0.6)
    axes.hlines(edges, edges[0], edges[-1], color=GREY, lw=0.6)
    few = active.first(MAX_IN_ONE_REGION)
    _draw_ellipses(axes, np.column_stack([few.x, few.y]), few.widths, colour, fill=0.02, edge=0.35)
    axes.plot(few.x, few.y, ".", color=CURVES[1], markersize=3.5)
    add_frame(axes, RULE, 0.6)
    note = (
        "An ellipse shows the mean and the standard\ndeviations of one Gaussian; dots are the means.\n"
        "Widths are limited to half a region.\nSmall squares are elements of the unpooled map z.\n"
        "Background of the map: the mean image."
    )
    add_text(figure, left, small + 0.34, note, color=GREY, fontsize=6, linespacing=1.5)
    return figure


def pixel_to_map(model: DeconvNet, layer: int) -> tuple[float, float]:
    """Scale and offset of the position of a pixel on the map z of a layer: position = scale · pixel + offset."""
    scale, offset = 1.0, 0.0
    for k, spec in enumerate(model.spec.layers[:layer], start=1):
        offset += (spec.filter_size - 1) / 2
        if k < layer:
            scale, offset = scale / spec.stride, (offset - (spec.pool_size - 1) / 2) / spec.stride
    return scale, offset


def draw_on_image(axes: Axes, model: DeconvNet, layer: int, active: Gaussians, colour: Any) -> None:
    """Gaussians of a layer as ellipses on a picture of the image, in its pixels."""
    scale, offset = pixel_to_map(model, layer)
    places = (active.on_map(model.spec.layers[layer - 1]) - offset) / scale
    _draw_ellipses(axes, places, active.widths / scale, colour, fill=0.0, edge=1.0)


def _draw_average(axes: Axes, model: DeconvNet, images: Tensor, layer: int) -> None:
    scale, offset = pixel_to_map(model, layer)
    height, width = images.shape[2:]
    left, right, top, bottom = (scale * edge + offset for edge in (-0.5, width - 0.5, -0.5, height - 0.5))
    axes.imshow(
        image_to_rgb(images.mean(0), ink=is_ink(images)), extent=(left, right, bottom, top), alpha=0.18, aspect="auto"
    )


def _draw_grid(axes: Axes, regions: Regions) -> None:
    """The borders of the regions, half an element beyond their first and last elements."""
    (_, rows, columns), (_, size, _), (_, stride, _) = regions.grid, regions.size, regions.stride
    height, width = (rows - 1) * stride + size, (columns - 1) * stride + size
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
    axes.vlines(np.arange(1, columns) * stride - 0.5, -0.5, height - 0.5, color=RULE, lw=0.5)
    axes.hlines(np.arange(1, rows) * stride - 0.5, -0.5, width - 0.5, color=RULE, lw=0.5)


def _draw_ellipses(
    axes: Axes, places: np.ndarray, widths: np.ndarray, colour: Any, *, fill: float, edge: float
) -> None:
    """Ellipses at places [n, 2] of widths [n, 2]; x comes first."""
    axes.add_collection(
        EllipseCollection(
            widths[:, 0],
            widths[:, 1],
            np.zeros(len(places)),
            units="xy",
            offsets=places,
            offset_transform=axes.transData,
            facecolors=to_rgba(colour, fill),
            edgecolors=to_rgba(colour, edge),
            linewidths=0.5,
        )
    )
