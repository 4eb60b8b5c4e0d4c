"""A map of where: the Gaussians of one feature over many images, as ellipses in their pooling regions."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.style import CURVES, GREY, PAGE, RULE, frame, place, sheet, styled, title, write
from whatwhere.figures.tiles import picture
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.ops.pooling import Regions

ONE_REGION = 40  # Gaussians drawn over each other


@dataclass(frozen=True)
class Gaussians:
    """The Gaussians of one feature wherever it is at work, [n] each; lengths in elements of the unpooled map z.

    image, row, column   the region
    value                the feature there, p̂
    x, y                 the mean, from the region's centre
    sigma_x, sigma_y     the standard deviations 1/√γ, no larger than half the region: wider ones are as good as flat
    """

    image: np.ndarray
    row: np.ndarray
    column: np.ndarray
    value: np.ndarray
    x: np.ndarray
    y: np.ndarray
    sigma_x: np.ndarray
    sigma_y: np.ndarray

    def first(self, count: int) -> Gaussians:
        return Gaussians(*(getattr(self, f.name)[:count] for f in fields(self)))


def gaussians(
    model: DeconvNet, images: Tensor, latents: Latents, layer: int, feature: int, *, most: int = 400, seed: int = 0
) -> Gaussians:
    """The Gaussians of a feature of any layer up to the latents' own, where p̂ ≠ 0; of more than `most`, a draw by seed.

    Features below the top layer are those that come down from it.
    """
    assert latents.p is not None
    height, width = images.shape[2:]
    p = (
        model.descend(latents.p, model.weights(latents.pooling_params, height, width), to=layer)[0][:, feature]
        .cpu()
        .numpy()
    )
    where = np.argwhere(np.abs(p) > 0.05 * np.abs(p).max(initial=0))  # what is smaller leaves no trace in the image
    chosen = np.random.default_rng([seed, layer, feature]).permutation(len(where))[:most]
    image, row, column = where[chosen].T
    theta = latents.pooling_params[layer - 1]
    mu = theta.mu[:, -2:, feature].cpu().numpy()[image, :, row, column]  # the axes of θ end in rows, columns
    gamma = theta.gamma[:, -2:, feature].cpu().numpy()[image, :, row, column]
    flat = model.spec.layers[layer - 1].pool_size / 2
    with np.errstate(divide="ignore"):
        sigma = np.minimum(1 / np.sqrt(gamma), flat)
    return Gaussians(image, row, column, p[image, row, column], mu[:, 1], mu[:, 0], sigma[:, 1], sigma[:, 0])


@styled
def where_map(
    model: DeconvNet, images: Tensor, latents: Latents, layer: int, feature: int, *, most: int = 400, seed: int = 0
) -> Figure:
    """Left: the Gaussians in place, on the grid of regions. Right: all of them laid over one region."""
    found = gaussians(model, images, latents, layer, feature, most=most, seed=seed)
    regions = model.regions(*images.shape[2:])[layer - 1]
    spec = model.spec.layers[layer - 1]
    side, small = 4.0, 2.5
    figure = sheet(PAGE, side + 0.26)
    colour, size = CURVES[0], spec.pool_size

    title(figure, 0, 0.03, f"Where feature {feature + 1} of layer {layer} is: {len(found.x)} Gaussians")
    axes = place(figure, 0.02, 0.22, side, side)
    _draw_average(axes, model, images, layer)
    _draw_grid(axes, regions)
    centre = (size - 1) / 2
    x, y = found.column * spec.stride + centre + found.x, found.row * spec.stride + centre + found.y
    _draw_ellipses(axes, found, x, y, colour, fill=0.14, edge=0.56)
    frame(axes, GREY, 0.6)

    left = side + 0.4
    title(figure, left, 0.03, f"{min(ONE_REGION, len(found.x))} of them, laid over one region")
    axes = place(figure, left, 0.22, small, small)
    axes.set_xlim(-0.8 * size, 0.8 * size)
    axes.set_ylim(0.8 * size, -0.8 * size)
    edges = np.arange(size + 1) - size / 2
    axes.vlines(edges, edges[0], edges[-1], color=GREY, lw=0.6)
    axes.hlines(edges, edges[0], edges[-1], color=GREY, lw=0.6)
    few = found.first(ONE_REGION)
    _draw_ellipses(axes, few, few.x, few.y, colour, fill=0.02, edge=0.35)
    axes.plot(few.x, few.y, ".", color=CURVES[1], markersize=3.5)
    frame(axes, RULE, 0.6)
    note = (
        "An ellipse has the mean and the standard\ndeviations of one Gaussian; dots are the means.\n"
        "One wider than half a region is drawn as a half.\nSmall squares are elements of the unpooled map z.\n"
        "Behind the map: the average of the images."
    )
    write(figure, left, small + 0.34, note, color=GREY, fontsize=6, linespacing=1.5)
    return figure


def pixel_to_map(model: DeconvNet, layer: int) -> tuple[float, float]:
    """Where a pixel lies on the unpooled map z of a layer: scale and offset of place = scale · pixel + offset."""
    scale, offset = 1.0, 0.0
    for k, spec in enumerate(model.spec.layers[:layer], start=1):
        offset += (spec.filter_size - 1) / 2
        if k < layer:
            scale, offset = scale / spec.stride, (offset - (spec.pool_size - 1) / 2) / spec.stride
    return scale, offset


def _draw_average(axes: Axes, model: DeconvNet, images: Tensor, layer: int) -> None:
    scale, offset = pixel_to_map(model, layer)
    height, width = images.shape[2:]
    left, right, top, bottom = (scale * edge + offset for edge in (-0.5, width - 0.5, -0.5, height - 0.5))
    axes.imshow(picture(images.mean(0)), extent=(left, right, bottom, top), alpha=0.18, aspect="auto")


def _draw_grid(axes: Axes, regions: Regions) -> None:
    """The borders of the regions, half an element outside their first and last element."""
    (_, rows, columns), (_, size, _), (_, stride, _) = regions.grid, regions.size, regions.stride
    height, width = (rows - 1) * stride + size, (columns - 1) * stride + size
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
    axes.vlines(np.arange(1, columns) * stride - 0.5, -0.5, height - 0.5, color=RULE, lw=0.5)
    axes.hlines(np.arange(1, rows) * stride - 0.5, -0.5, width - 0.5, color=RULE, lw=0.5)


def _draw_ellipses(
    axes: Axes, found: Gaussians, x: np.ndarray, y: np.ndarray, colour: str, *, fill: float, edge: float
) -> None:
    axes.add_collection(
        EllipseCollection(
            2 * found.sigma_x,
            2 * found.sigma_y,
            np.zeros(len(x)),
            units="xy",
            offsets=np.column_stack([x, y]),
            offset_transform=axes.transData,
            facecolors=(colour, fill),
            edgecolors=(colour, edge),
            linewidths=0.5,
        )
    )
