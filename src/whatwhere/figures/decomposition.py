"""An image taken apart into its features, each in its own hue (paper, Figs. decomp_l1 and decomp_l2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.style import GREY, PAGE, RULE, feature_colours, frame, place, sheet, styled, title, write
from whatwhere.figures.tiles import mix, picture, shade
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.ops.pooling import unpool

MOST = 16  # maps in a row
HEADING = 0.27  # inches above a row: its title and the maps' numbers


@dataclass(frozen=True)
class Parts:
    """What each active feature of one image does alone on its way down; the parts of a stage add up to the whole.

    features   the features that are active, [A]
    pooled     p̂_k of layer 1, 2, … up to the features' own: [A, B_k, H, W] each
    unpooled   z_k of the same layers
    pixels     what each adds to the reconstruction, [A, C, H, W]
    """

    features: np.ndarray
    pooled: tuple[np.ndarray, ...]
    unpooled: tuple[np.ndarray, ...]
    pixels: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The share of the reconstruction that each feature accounts for, [A], adding up to 1."""
        amounts = np.abs(self.pixels).sum((1, 2, 3))
        return amounts / amounts.sum() if amounts.sum() > 0 else amounts


def take_apart(model: DeconvNet, latents: Latents, height: int, width: int) -> Parts:
    """Send every active feature of one image down alone, with that image's pooling variables.

    latents   of one image: p [1, B, h, w]; height, width of the image
    """
    assert latents.p is not None
    assert len(latents.p) == 1, "latents of one image"
    active = latents.p[0].flatten(1).any(1).nonzero().flatten()
    alone = latents.p.new_zeros(len(active), *latents.p.shape[1:])
    alone[range(len(active)), active] = latents.p[0, active]
    weights = model.weights(latents.map(lambda t: t.expand(len(active), *t.shape[1:])).pooling_params, height, width)
    stages = model.descend(alone, weights)
    unpooled = [unpool(p, w) for p, w in zip(stages[1:], weights, strict=True)]

    def numbers(stage: Tensor) -> np.ndarray:
        return stage.detach().cpu().double().numpy()

    pooled, z = tuple(map(numbers, stages[1:])), tuple(map(numbers, unpooled))
    return Parts(active.cpu().numpy(), pooled, z, numbers(stages[0]))


def coloured(parts: Parts, features: int, limit: float | None = None) -> np.ndarray:
    """The reconstruction, every pixel in the hues of the features it comes from: [H, W, 3]; `features` is B."""
    return mix(parts.pixels.mean(1), feature_colours(features)[parts.features], limit)


@styled
def decomposition(model: DeconvNet, image: Tensor, latents: Latents) -> Figure:
    """From the features down to the pixels, a row a stage; image [C, H, W], latents of that one image.

    The features of the top row are the active ones. Below, maps hold what comes down from them, in their hues.
    """
    assert latents.p is not None
    parts = take_apart(model, latents, *image.shape[1:])
    colours = feature_colours(latents.p.shape[1])[parts.features]
    rows = _rows(model, parts, colours)
    heights = [HEADING + _cell(len(row.numbers)) + 0.1 for row in rows]
    figure = sheet(PAGE, sum(heights) + 0.2 + 1.9)
    y = 0.02
    for row, height in zip(rows, heights, strict=True):
        _draw_row(figure, row, y)
        y += height
    _draw_whole(figure, y, image, parts, colours, latents.p.shape[1], "abcdefghijklmnop"[len(rows) :])
    return figure


@dataclass(frozen=True)
class _Row:
    heading: str
    numbers: np.ndarray  # of the maps
    pictures: list[np.ndarray]
    frames: list[object]


def _cell(maps: int) -> float:
    """The side of a map, in inches, in a row of so many."""
    return min(0.62, PAGE / max(maps, 1) - 0.05)


def _rows(model: DeconvNet, parts: Parts, colours: np.ndarray) -> list[_Row]:
    """Features, unpooled maps, … down to the filters of layer 1."""
    depth, letters, rows = len(parts.pooled), iter("abcdefghijklmnop"), []
    kept = np.sort(np.argsort(-parts.shares, kind="stable")[:MOST])  # of the active features
    for k in range(depth, 0, -1):
        stages = (
            ("features p", parts.pooled[k - 1], 1),
            ("unpooled maps z", parts.unpooled[k - 1], _together(model, k)),
        )
        for name, stage, group in stages:
            if k == depth:  # the maps of the features themselves, each in a frame of its hue
                maps = (parts.features[kept][:, None] * group + np.arange(group)).ravel()
                frames: list[object] = list(colours[kept].repeat(group, axis=0))
                note = "" if len(kept) == len(parts.features) else f", {len(kept)} of {len(parts.features)}"
            else:  # the maps with most in them
                maps = np.sort(np.argsort(-stage.sum((0, 2, 3)), kind="stable")[:MOST])
                frames, note = [RULE] * len(maps), ", as they come down from above"
            heading = f"({next(letters)}) {name}{_subscript(k)}{note}"
            rows.append(_Row(heading, maps, list(mix(stage[:, maps], colours)), frames))
    f = model.filters[0].detach().cpu().mean(0).numpy()[rows[-1].numbers]
    rows.append(_Row(f"({next(letters)}) filters f₁", rows[-1].numbers, list(map(shade, f)), rows[-1].frames))
    return rows


def _together(model: DeconvNet, layer: int) -> int:
    """How many neighbouring unpooled maps belong to one feature."""
    return model.spec.layers[layer - 1].pool_maps


def _draw_row(figure: Figure, row: _Row, y: float) -> None:
    cell = _cell(len(row.numbers))
    title(figure, 0, y, row.heading)
    for i, (number, shown, colour) in enumerate(zip(row.numbers, row.pictures, row.frames, strict=True)):
        left = i * (cell + 0.05) + 0.01
        write(figure, left, y + HEADING - 0.02, str(number + 1), fontsize=5.5, color=GREY, va="bottom")
        axes = place(figure, left, y + HEADING, cell, cell)
        axes.imshow(shown)
        frame(axes, colour)


def _draw_whole(
    figure: Figure, y: float, image: Tensor, parts: Parts, colours: np.ndarray, features: int, letters: str
) -> None:
    """The pixels: their colours, the input, and the share of every feature."""
    y, side = y + 0.04, 1.7
    limit = max(1.0, float(image.max()))
    panels = {"reconstruction, by feature": coloured(parts, features, limit), "input": picture(image, limit)}
    for i, (heading, shown) in enumerate(panels.items()):
        title(figure, i * (side + 0.2), y, f"({letters[i]}) {heading}")
        axes = place(figure, i * (side + 0.2) + 0.01, y + 0.17, side, side)
        axes.imshow(shown)
        frame(axes, RULE, 0.8)
    left = 2 * (side + 0.2) + 0.25
    title(figure, left, y, f"({letters[2]}) share of each feature")
    axes = place(figure, left, y + 0.17, PAGE - left - 0.4, side)
    order = np.argsort(-parts.shares, kind="stable")[:MOST]
    axes.barh(np.arange(len(order)), parts.shares[order], color=colours[order], height=0.72)
    for bar, (feature, share) in enumerate(zip(parts.features[order], parts.shares[order], strict=True)):
        axes.text(share, bar, f" {share:.0%}", va="center", fontsize=5.5)
        axes.text(0, bar, f"{feature + 1} ", va="center", ha="right", fontsize=5.5, color=GREY)
    axes.set_ylim(MOST - 0.4, -0.6)


def _subscript(k: int) -> str:
    return str(k).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
