"""Activations of one feature: a random choice of them, their Gaussians as ellipses, what each of
them draws alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.typing import ColorType
from torch import Tensor

from whatwhere.figures import style
from whatwhere.inference.target import image_tensor
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.model.sized import LayerPlaces


@dataclass(frozen=True)
class _Activations:
    """Activations of one feature: image, row and column on the map, and value; [n] each."""

    feature: int
    image: np.ndarray
    row: np.ndarray
    column: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.image)


def draw_activations(p: Tensor, feature: int, count: int, least: float = 0.0) -> _Activations:
    """Draw `count` non-zero activations of a feature uniformly, without replacement, or all; p [N,
    B, H, W].

    Parameters
    ----------
    least
        activations that are smaller than this share of the largest are left out
    """
    values = p[:, feature].detach().cpu().numpy()
    places = np.argwhere(np.abs(values) > least * np.abs(values).max(initial=0))
    image, row, column = places[
        np.random.default_rng([0, feature]).permutation(len(places))[:count]
    ].T
    return _Activations(feature, image, row, column, values[image, row, column])


@dataclass(frozen=True)
class Gaussians:
    """The Gaussians of activations; x first, in elements of z: [n, 2] each.

    Parameters
    ----------
    centre
        the mean on the map z
    sigma
        the standard deviations 1/√γ, at most half a region: wider Gaussians are almost flat
    """

    centre: np.ndarray
    sigma: np.ndarray

    def __len__(self) -> int:
        return len(self.centre)

    def in_pixels(self, model: DeconvNet, layer: int) -> Gaussians:
        """Return the same in pixels of the image."""
        stride, offset = np.transpose([map_places(model, layer, axis) for axis in (1, 0)])
        return Gaussians(self.centre * stride + offset, self.sigma * stride)


def gaussians(
    model: DeconvNet,
    images: Tensor,
    latents: Latents,
    layer: int,
    feature: int,
    *,
    most: int = 400,
) -> Gaussians:
    """Return the Gaussians of a feature of any layer up to the latents' own, in the regions where
    p̂ is large enough to be seen in the image.

    Below the top layer, p̂ is the reconstruction from the layers above.

    Parameters
    ----------
    most
        the largest number of Gaussians
    """
    sized = model.at(*images.shape[2:])
    spec = model.spec.layers[layer - 1]
    theta = latents.pooling_params[layer - 1]
    p_hat = sized.reconstruct(latents.features, sized.weights(latents.pooling_params), to=layer)
    drawn = draw_activations(p_hat, feature, most, least=0.05)

    def columns_and_rows(
        parameter: Tensor,
    ) -> np.ndarray:  # the last two axes of θ are rows and columns
        return parameter[:, -2:, feature].cpu().numpy()[drawn.image, ::-1, drawn.row, drawn.column]

    regions = np.column_stack([drawn.column, drawn.row])
    size = np.array(spec.pool_shape[::-1])
    centre = regions * np.array(spec.strides[::-1]) + (size - 1) / 2 + columns_and_rows(theta.mu)
    with np.errstate(divide="ignore"):
        return Gaussians(centre, np.minimum(1 / np.sqrt(columns_and_rows(theta.gamma)), size / 2))


def map_places(model: DeconvNet, layer: int, axis: int) -> tuple[int, float]:
    """Map an element i of the map z of a layer is centred at pixel stride · i + offset, along rows
    (axis 0) or columns (1)."""
    return LayerPlaces.of(model.spec, axis)[layer - 1].unpooled(
        model.spec.layers[layer - 1].filter_shape[axis]
    )


def project(
    model: DeconvNet, latents: Latents, drawn: _Activations, height: int, width: int
) -> Tensor:
    """Return each activation on its own, with the pooling variables of its image, projected to the
    pixels: [n, C, h, w].

    Returns the pixels that each activation can affect; `height` and `width` belong to the
    images.
    """
    n = len(drawn)
    layer = len(latents.pooling_params)
    p = latents.features.new_zeros(n, *latents.features.shape[1:])
    p[np.arange(n), drawn.feature, drawn.row, drawn.column] = torch.as_tensor(drawn.value).to(p)
    pixels = model.at(height, width).decode(
        Latents(p, latents[torch.as_tensor(drawn.image)].pooling_params)
    )
    rows, columns = (
        [LayerPlaces.of(model.spec, axis)[layer].pixels_of(int(place)) for place in (0, *places)]
        for axis, places in enumerate((drawn.row, drawn.column))
    )
    tall, wide = (places[0][1] - places[0][0] for places in (rows, columns))
    pixels = F.pad(pixels, (wide, wide, tall, tall))  # a footprint may extend beyond the image
    crops = [
        image[:, tall + top : tall + bottom, wide + left : wide + right]
        for image, (top, bottom), (left, right) in zip(pixels, rows[1:], columns[1:], strict=True)
    ]
    return torch.stack(crops) if crops else pixels.new_zeros(0, pixels.shape[1], tall, wide)


@style.styled
def where_map(
    model: DeconvNet, images: object, latents: Latents, layer: int, feature: int
) -> Figure:
    """Draw the Gaussians of one feature on the grid of pooling regions, over the mean image.

    Parameters
    ----------
    model
        the model
    images
        pictures as `infer` takes them, such as a tensor [N, C, H, W]
    latents
        latents of the images
    layer
        number of the layer, from 1
    feature
        index of the feature in the layer, from 0

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> spec = ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=10)
    >>> latents = ww.infer(model, images, spec).latents
    >>> figure = ww.figures.where_map(model, images, latents, layer=1, feature=4)
    """
    images = image_tensor(model, images)
    active = gaussians(model, images, latents, layer, feature)
    spec = model.spec.layers[layer - 1]
    _, rows, columns = model.at(*images.shape[2:]).regions[layer - 1].grid
    down, right = spec.strides
    height = (rows - 1) * down + spec.pool_shape[0]
    width = (columns - 1) * right + spec.pool_shape[1]
    figure = Figure(figsize=(style.COLUMN, style.COLUMN * height / width + 0.26))
    heading = f"Positions of feature {feature + 1} of layer {layer}: {len(active)} Gaussians"
    style.add_heading(figure, 0, 0.03, heading)
    axes = style.add_panel(figure, 0.02, 0.22, style.COLUMN - 0.04, style.COLUMN * height / width)

    (top, bottom), (left, end) = (
        [(edge - 0.5 - offset) / stride for edge in (0, side)]
        for side, (stride, offset) in zip(
            images.shape[2:], (map_places(model, layer, a) for a in (0, 1)), strict=True
        )
    )
    mean = style.image_to_rgb(images.mean(0), ink=style.is_ink(images))
    axes.imshow(mean, extent=(left, end, bottom, top), alpha=0.18, aspect="auto")
    # half an element beyond the first and last elements of the regions
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
    axes.vlines(np.arange(1, columns) * right - 0.5, -0.5, height - 0.5, color=style.RULE, lw=0.5)
    axes.hlines(np.arange(1, rows) * down - 0.5, -0.5, width - 0.5, color=style.RULE, lw=0.5)
    draw_ellipses(axes, active, style.CURVES[0], fill=0.14, edge=0.56)
    style.add_frame(axes, style.GREY, 0.6)
    return figure


def draw_ellipses(
    axes: Axes, active: Gaussians, colour: ColorType, *, fill: float = 0.0, edge: float = 1.0
) -> None:
    """Draw an ellipse for each Gaussian, as wide as two standard deviations; `fill` and `edge` are
    opacities."""
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
