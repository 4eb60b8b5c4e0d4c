"""The trained model on one page (paper, Fig. composite): reconstructions, filters and samples of every feature."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.sampling import draw_samples, project_samples
from whatwhere.figures.style import (
    COLUMN,
    GREY,
    PAGE,
    add_panel,
    add_text,
    add_title,
    characters_per_line,
    new_figure,
    styled,
)
from whatwhere.figures.tiles import GAP, WHITE, columns_for, enlarge, image_to_rgb, shade, tile
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet

HEADING, LINE = 0.2, 0.13  # inches: the heading above a panel, and each further line of it


def reconstruction_pairs(model: DeconvNet, images: Tensor, latents: Latents, columns: int = 4) -> np.ndarray:
    """Pairs of an image and, to its right, its reconstruction; `columns` pairs per row: [H, W, 3]."""
    assert latents.p is not None
    v_hat = model.at(*images.shape[2:]).decode(latents)
    pairs = [
        tile(np.stack([v, r]), 2, between=GAP)
        for v, r in zip(image_to_rgb(images, 1.0), image_to_rgb(v_hat, 1.0), strict=True)
    ]
    return tile(pairs, columns, gap=2, between=WHITE)


def filter_sheet(model: DeconvNet) -> np.ndarray:
    """The filters of layer 1, each scaled by its largest weight: [H, W, 3]."""
    f = model.filters[0].transpose(0, 1)
    largest = f.abs().amax((1, 2, 3), keepdim=True)
    rgb = image_to_rgb(f / largest.where(largest > 0, torch.ones_like(largest)), 1.0)
    return tile(enlarge(rgb, 20), columns_for(len(f)))


def plane_sheet(model: DeconvNet, layer: int = 2, columns: int = 8) -> np.ndarray:
    """The filter planes of a layer, one group for each map below: [H, W, 3].

    Each filter is scaled by the largest weight of all its planes. Planes between unconnected maps are grey.
    """
    f, connected = model.filters[layer - 1].cpu().numpy(), model.connectivity[layer - 1].cpu().numpy()
    largest = np.abs(f).max((0, 2, 3), keepdims=True)
    rgb = shade(np.where(connected[:, :, None, None], f / np.where(largest > 0, largest, 1), np.nan), 1.0)
    groups = [tile(enlarge(group), columns_for(f.shape[1])) for group in rgb]
    return tile(groups, min(columns, len(groups)), gap=groups[0].shape[0] // 10, between=WHITE)


def invariance_sheet(
    model: DeconvNet,
    latents: Latents,
    height: int,
    width: int,
    *,
    columns: int | None = None,
    count: int = 16,
    seed: int = 0,
) -> np.ndarray:
    """A square of samples for every feature, each scaled by its largest pixel; missing samples are grey: [H, W, 3]."""
    assert latents.p is not None
    side = columns_for(count)
    groups = []
    for feature in range(latents.p.shape[1]):
        samples = draw_samples(latents.p, feature, count, seed)
        pixels = project_samples(model, latents, samples, height, width)
        largest = pixels.abs().amax((1, 2, 3), keepdim=True)
        rgb = enlarge(image_to_rgb(pixels / largest.where(largest > 0, torch.ones_like(largest)), 1.0))
        missing = np.broadcast_to(GAP, (count - len(samples), *rgb.shape[1:]))
        groups.append(tile(np.concatenate([rgb, missing]), side))
    return tile(groups, columns or columns_for(len(groups)), gap=groups[0].shape[0] // 16, between=WHITE)


@styled
def reconstructions(
    model: DeconvNet, images: Tensor, latents: Latents, *, columns: int = 6, width: float = PAGE
) -> Figure:
    """Images, each with its reconstruction from the top layer of the latents to its right.

    model    the model
    images   [N, C, H, W]
    latents  of the images
    columns  pairs per row
    width    of the figure, in inches

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> latents = ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=10)).latents
    >>> figure = ww.figures.reconstructions(model, images, latents)
    """
    pairs = reconstruction_pairs(model, images, latents, columns)
    return _one_panel(pairs, width, f"Inputs (left) and reconstructions from layer {len(latents.pooling_params)}")


@styled
def filters(model: DeconvNet, *, width: float = COLUMN) -> Figure:
    """The filters of layer 1.

    model  the model
    width  of the figure, in inches

    >>> figure = ww.figures.filters(ww.load("mnist"))
    """
    return _one_panel(filter_sheet(model), width, f"The {model.spec.layers[0].maps} filters of layer 1")


@styled
def planes(model: DeconvNet, layer: int = 2, *, columns: int = 4, width: float = PAGE) -> Figure:
    """The filter planes of a layer, one group for each map below; `columns` groups per row.

    model  the model
    layer  from 2
    width  of the figure, in inches

    >>> figure = ww.figures.planes(ww.load("mnist"), layer=2)
    """
    below, maps = model.filters[layer - 1].shape[:2]
    heading = f"Filter planes of layer {layer}: {below} groups, one for each map below, of {maps} planes"
    return _one_panel(plane_sheet(model, layer, columns), width, heading)


@styled
def invariances(
    model: DeconvNet,
    images: Tensor,
    latents: Latents,
    *,
    columns: int = 8,
    count: int = 16,
    seed: int = 0,
    width: float = PAGE,
) -> Figure:
    """Samples of every feature of the latents' layer, projected to the pixels; `columns` features per row.

    model    the model
    images   [N, C, H, W]
    latents  of the images
    count    of samples of each feature
    seed     of the choice of samples
    width    of the figure, in inches

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> latents = ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=10)).latents
    >>> figure = ww.figures.invariances(model, images, latents, count=4)
    """
    assert latents.p is not None
    samples = invariance_sheet(model, latents, *images.shape[2:], columns=columns, count=count, seed=seed)
    layer, features = len(latents.pooling_params), latents.p.shape[1]
    return _one_panel(samples, width, f"Layer {layer}: {count} samples of each of its {features} features")


def _one_panel(rgb: np.ndarray, width: float, heading: str) -> Figure:
    height = width * rgb.shape[0] / rgb.shape[1]
    lines = textwrap.wrap(heading, characters_per_line(width))
    top = HEADING + LINE * (len(lines) - 1)
    figure = new_figure(width, height + top)
    add_title(figure, 0.02, 0.03, "\n".join(lines))
    add_panel(figure, 0, top, width, height).imshow(rgb)
    return figure


@styled
def composite(
    model: DeconvNet, images: Tensor, latents: Sequence[Latents], *, pairs: int = 16, count: int = 16, seed: int = 0
) -> Figure:
    """Reconstructions, filters and samples of every layer on one page.

    model    the model
    images   [N, C, H, W]
    latents  of the images, inferred from layer 1, from layer 2, … up to the top layer
    pairs    of images and reconstructions
    count    of samples of each feature
    seed     of the choice of samples

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> spec = ww.InferenceSpec(lam=0.5, alpha=0.5, steps=5)
    >>> layers = [ww.infer(model, images, spec, [ww.Phase(layer=k)]).latents for k in (1, 2)]
    >>> figure = ww.figures.composite(model, images, layers, pairs=4, count=4)
    """
    size, top = tuple(images.shape[2:]), latents[-1]
    first = {
        "(a) inputs and reconstructions": reconstruction_pairs(model, images[:pairs], top[:pairs]),
        "(b) layer 1 filters": filter_sheet(model),
        f"(c) layer 1, {count} samples each": invariance_sheet(model, latents[0], *size, count=count, seed=seed),
    }
    rows = [_row(first, widths=(3.3, 1.65, 1.65))]
    for k, layer_latents in enumerate(latents[1:], start=2):
        letters = "defghijklmnopqrstuvwxyz"[2 * (k - 2) :]
        below, maps = model.filters[k - 1].shape[:2]
        plane = f"({letters[0]}) layer {k} filters: {below} groups, one for each map below, of {maps} planes"
        sample = f"({letters[1]}) layer {k}, {count} samples of each of {maps} features"
        rows.append(_row({plane: plane_sheet(model, k)}))
        rows.append(_row({sample: invariance_sheet(model, layer_latents, *size, columns=8, count=count, seed=seed)}))
    figure = new_figure(PAGE, sum(height for height, _ in rows) + 0.18)
    y = 0.0
    for height, panels in rows:
        for panel in panels:
            add_title(figure, panel.left, y + 0.04, panel.heading)
            add_panel(figure, panel.left, y + HEADING, panel.width, panel.height).imshow(panel.rgb)
        y += height
    note = (
        "Samples are drawn from all activations of a feature over the images, each scaled by its maximum; "
        "grey cells: the feature has fewer activations."
    )
    add_text(figure, 0, y + 0.02, note, color=GREY, fontsize=6)
    return figure


@dataclass(frozen=True)
class _Panel:
    heading: str
    rgb: np.ndarray
    left: float
    width: float
    height: float


def _row(panels: dict[str, np.ndarray], widths: Sequence[float] = (PAGE,)) -> tuple[float, list[_Panel]]:
    """Panels of these widths across the page: the height of the row, and the panels."""
    gap = (PAGE - sum(widths)) / max(1, len(widths) - 1)
    left, placed = 0.0, []
    for (heading, rgb), width in zip(panels.items(), widths, strict=True):
        placed.append(_Panel(heading, rgb, left, width, width * rgb.shape[0] / rgb.shape[1]))
        left += width + gap
    return max(panel.height for panel in placed) + HEADING + 0.08, placed
