"""The decomposition of an image into the maps of its features, each in its own colour (paper,
Figs. 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import ColorType
from torch import Tensor

from whatwhere.figures import style
from whatwhere.figures.activations import draw_ellipses, gaussians
from whatwhere.figures.composite import filters_as_images
from whatwhere.inference.target import one_image
from whatwhere.latents import Background, Latents
from whatwhere.model import DeconvNet

_MAX_MAPS = 16  # maps in a row
_HEADING = 0.27  # inches above a row: its title and the numbers of the maps
_SIDE = 1.7  # side of the image, in inches


@dataclass(frozen=True)
class Contributions:
    """The contribution of each active feature map of one image at every stage of the
    reconstruction.

    The reconstruction is linear in the features, so the contributions add up to it at every stage.

    Parameters
    ----------
    active
        numbers of the active maps: those with a feature that is not 0, [A]
    maps
        how many maps the layer has, active or not
    pooled
        contributions to p̂_k of layer 1, 2, … up to the layer of the features: [A, B_k, H, W] each
    unpooled
        contributions to z_k of the same layers
    pixels
        contributions to the image, [A, C, H, W]; without the low-pass that an input stage subtracts
    """

    active: np.ndarray
    maps: int
    pooled: tuple[np.ndarray, ...]
    unpooled: tuple[np.ndarray, ...]
    pixels: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The share of each map in the reconstruction, [A]; the shares add up to 1."""
        amounts: np.ndarray = np.abs(self.pixels).sum((1, 2, 3))
        return amounts / amounts.sum() if amounts.sum() > 0 else amounts

    @property
    def colours(self) -> np.ndarray:
        return style.feature_colours(self.maps)[self.active]

    def coloured(self, limit: float | None = None) -> np.ndarray:
        """Return the reconstruction with every pixel in the colours of the maps it comes from: [H,
        W, 3]."""
        return style.mix_colours(self.pixels.mean(1), self.colours, limit)


def decompose(model: DeconvNet, latents: Latents, height: int, width: int) -> Contributions:
    """Reconstruct one image from each of its active maps separately, with the pooling variables
    of the image.

    Parameters
    ----------
    latents
        latents of one image: p [1, B, h, w]
    height, width
        size of the image
    """
    p = latents.features
    sized = model.at(height, width)
    assert len(p) == 1, "latents of one image"
    active = p[0].flatten(1).any(1).nonzero().flatten()
    separate = p.new_zeros(len(active), *p.shape[1:])
    separate[range(len(active)), active] = p[0, active]
    weights = sized.weights(latents.pooling_params)  # of one image, the same for all features
    stages = sized.descend(separate, weights)
    unpooled = [w.unpool(p) for p, w in zip(stages[1:], weights, strict=True)]

    def to_numpy(stage: Tensor) -> np.ndarray:
        return stage.detach().cpu().double().numpy()

    pooled = tuple(map(to_numpy, stages[1:]))
    z = tuple(map(to_numpy, unpooled))
    pixels = model.input_stage.inverse(stages[0], Background(scale=latents.background.scale))
    return Contributions(active.cpu().numpy(), p.shape[1], pooled, z, to_numpy(pixels))


@style.styled
def decomposition(model: DeconvNet, image: object, latents: Latents) -> Figure:
    """Draw the reconstruction of one image stage by stage, from its active maps down to the pixels.

    The top row shows the active maps. The rows below show their contributions, in their colours,
    and an ellipse on the image for the Gaussian of every active feature.

    Parameters
    ----------
    model
        the model
    image
        one picture as `infer` takes it, such as a tensor [C, H, W]
    latents
        latents of this image alone, `latents[i : i + 1]`

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> spec = ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=10)
    >>> latents = ww.infer(model, images, spec).latents
    >>> figure = ww.figures.decomposition(model, images[0], latents[:1])
    """
    image = one_image(model, image)
    contributions = decompose(model, latents, *image.shape[1:])
    layer = len(latents.pooling_params)
    rows = _rows(model, contributions)
    letters = iter("abcdefghijklmnop")
    cells = [min(0.62, style.PAGE / max(len(row.maps), 1) - 0.05) for row in rows]
    figure = Figure(figsize=(style.PAGE, sum(cells) + len(rows) * (_HEADING + 0.1) + 2.1))
    y = 0.02
    for row, cell in zip(rows, cells, strict=True):
        style.add_heading(figure, 0, y, f"({next(letters)}) {row.heading}")
        for i, (number, rgb, colour) in enumerate(
            zip(row.maps, row.pictures, row.frames, strict=True)
        ):
            left = i * (cell + 0.05) + 0.01
            style.add_text(
                figure,
                left,
                y + _HEADING - 0.02,
                str(number + 1),
                fontsize=5.5,
                color=style.GREY,
                va="bottom",
            )
            style.add_picture(figure, left, y + _HEADING, cell, rgb, colour)
        y += _HEADING + cell + 0.1
    limit = max(1.0, float(image.max()))
    details = model.spec.input.kind != "none"  # they have their own scale
    has_gaussians = model.spec.layers[layer - 1].pooling.moves
    panels = {
        "what and where" if has_gaussians else "what": contributions.coloured(
            None if details else limit
        ),
        "input": style.image_to_rgb(image, limit, ink=style.is_ink(image)),
    }
    for i, (heading, rgb) in enumerate(panels.items()):
        style.add_heading(figure, i * (_SIDE + 0.2), y + 0.04, f"({next(letters)}) {heading}")
        axes = style.add_picture(figure, i * (_SIDE + 0.2) + 0.01, y + 0.21, _SIDE, rgb)
        if i == 0 and has_gaussians:
            for feature, colour in zip(contributions.active, contributions.colours, strict=True):
                active = gaussians(model, image[None], latents, layer, int(feature))
                draw_ellipses(axes, active.in_pixels(model, layer), colour)
    left = 2 * (_SIDE + 0.2) + 0.25
    style.add_heading(figure, left, y + 0.04, f"({next(letters)}) share of each map")
    _draw_shares(
        style.add_panel(figure, left, y + 0.21, style.PAGE - left - 0.4, _SIDE), contributions
    )
    return figure


@dataclass(frozen=True)
class _Row:
    heading: str
    maps: np.ndarray  # their numbers
    pictures: list[np.ndarray]
    frames: list[ColorType]  # their colours


def _rows(model: DeconvNet, contributions: Contributions) -> list[_Row]:
    """Return features, unpooled maps, … down to the filters of layer 1."""
    depth = len(contributions.pooled)
    rows = []
    active = contributions.active
    colours = contributions.colours
    # among the active maps
    largest = np.sort(np.argsort(-contributions.shares, kind="stable")[:_MAX_MAPS])
    for k in range(depth, 0, -1):
        stages = (
            ("features p", contributions.pooled[k - 1], 1),
            ("unpooled maps z", contributions.unpooled[k - 1], model.spec.layers[k - 1].pool_maps),
        )
        for name, stage, group in stages:
            if k == depth:  # the active maps, each in a frame of its colour
                maps = (active[largest][:, None] * group + np.arange(group)).ravel()
                frames: list[ColorType] = list(colours[largest].repeat(group, axis=0))
                note = ""
                if len(largest) < len(active):
                    note = f", {len(largest)} of {len(active)} active maps"
            else:  # the maps with the largest sums
                maps = np.sort(np.argsort(-stage.sum((0, 2, 3)), kind="stable")[:_MAX_MAPS])
                frames = [style.RULE] * len(maps)
                note = ", reconstructed from above"
            subscript = str(k).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
            rows.append(
                _Row(
                    f"{name}{subscript}{note}",
                    maps,
                    list(style.mix_colours(stage[:, maps], colours)),
                    frames,
                )
            )
    f = filters_as_images(model).mean(1).numpy()[rows[-1].maps]
    return [*rows, _Row("filters f₁", rows[-1].maps, list(map(style.shade, f)), rows[-1].frames)]


def _draw_shares(axes: Axes, contributions: Contributions) -> None:
    shares = contributions.shares
    colours = contributions.colours
    order = np.argsort(-shares, kind="stable")[:_MAX_MAPS]
    axes.barh(np.arange(len(order)), shares[order], color=colours[order], height=0.72)
    for bar, (feature, share) in enumerate(
        zip(contributions.active[order], shares[order], strict=True)
    ):
        axes.text(share, bar, f" {share:.0%}", va="center", fontsize=5.5)
        axes.text(
            0, bar, f"{feature + 1} ", va="center", ha="right", fontsize=5.5, color=style.GREY
        )
    axes.set_ylim(_MAX_MAPS - 0.4, -0.6)
