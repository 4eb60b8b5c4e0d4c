"""The trained model on one page (paper, Fig. composite): reconstructions, filters and samples of every feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.decomposition import filters_as_images
from whatwhere.figures.sampling import draw_samples, project_samples
from whatwhere.figures.style import COLUMN, GREY, PAGE, add_panel, add_text, add_title, new_figure, styled
from whatwhere.figures.tiles import GAP, WHITE, columns_for, enlarge, image_to_rgb, is_ink, part_to_rgb, shade, tile
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet

HEADING, BETWEEN, BELOW = 0.2, 0.2, 0.08  # inches: above a panel, next to it, and below it


def reconstruction_pairs(model: DeconvNet, images: Tensor, latents: Latents, columns: int = 4) -> np.ndarray:
    """Pairs of an image and, to its right, its reconstruction; `columns` pairs per row: [H, W, 3]."""
    assert latents.p is not None
    v_hat, ink = model.at(*images.shape[2:]).decode(latents), is_ink(images)
    v_hat = v_hat.clamp(min=min(0.0, float(images.min())))  # what no image has is not drawn
    pairs = [
        tile(np.stack([v, r]), 2, between=GAP)
        for v, r in zip(image_to_rgb(images, 1.0, ink=ink), image_to_rgb(v_hat, 1.0, ink=ink), strict=True)
    ]
    return tile(pairs, columns, gap=2, between=WHITE)


def filter_sheet(model: DeconvNet) -> np.ndarray:
    """The filters of layer 1, each scaled by its largest weight: [H, W, 3]."""
    f = filters_as_images(model)
    return tile(enlarge(part_to_rgb(f), 20), columns_for(len(f)))


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
    size: Sequence[int],
    *,
    columns: int | None = None,
    count: int = 16,
    seed: int = 0,
) -> np.ndarray:
    """A square of samples for every feature, each scaled by its largest pixel; missing samples are grey: [H, W, 3].

    size  height and width of the images
    """
    assert latents.p is not None
    side = columns_for(count)
    groups = []
    for feature in range(latents.p.shape[1]):
        samples = draw_samples(latents.p, feature, count, seed)
        rgb = enlarge(part_to_rgb(project_samples(model, latents, samples, *size)))
        missing = np.broadcast_to(GAP, (count - len(samples), *rgb.shape[1:]))
        groups.append(tile(np.concatenate([rgb, missing]), side))
    return tile(groups, columns or columns_for(len(groups)), gap=groups[0].shape[0] // 16, between=WHITE)


@styled
def reconstructions(model: DeconvNet, images: Tensor, latents: Latents) -> Figure:
    """Images, each with its reconstruction from the top layer of the latents to its right.

    model    the model
    images   [N, C, H, W]
    latents  of the images

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> latents = ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=10)).latents
    >>> figure = ww.figures.reconstructions(model, images, latents)
    """
    heading = f"Inputs (left) and reconstructions from layer {len(latents.pooling_params)}"
    return _page([{heading: reconstruction_pairs(model, images, latents, columns=6)}])


@styled
def filters(model: DeconvNet) -> Figure:
    """The filters of layer 1.

    model  the model

    >>> figure = ww.figures.filters(ww.load("mnist"))
    """
    return _page([{f"The {model.spec.layers[0].maps} filters of layer 1": filter_sheet(model)}], width=COLUMN)


@styled
def planes(model: DeconvNet, layer: int = 2) -> Figure:
    """The filter planes of a layer, one group for each map below.

    model  the model
    layer  from 2

    >>> figure = ww.figures.planes(ww.load("mnist"), layer=2)
    """
    return _page([{_plane_heading(model, layer): plane_sheet(model, layer, columns=4)}])


@styled
def invariances(model: DeconvNet, images: Tensor, latents: Latents, *, count: int = 16, seed: int = 0) -> Figure:
    """Samples of every feature of the latents' layer, projected to the pixels.

    model    the model
    images   [N, C, H, W]
    latents  of the images
    count    of samples of each feature
    seed     of the choice of samples

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> latents = ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=10)).latents
    >>> figure = ww.figures.invariances(model, images, latents, count=4)
    """
    samples = invariance_sheet(model, latents, images.shape[2:], columns=8, count=count, seed=seed)
    return _page([{_sample_heading(latents, count): samples}])


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
    size, letters = tuple(images.shape[2:]), iter("defghijklmnopqrstuvwxyz")
    rows = [
        {
            "(a) inputs and reconstructions": reconstruction_pairs(model, images[:pairs], latents[-1][:pairs]),
            "(b) layer 1 filters": filter_sheet(model),
            f"(c) layer 1, {count} samples each": invariance_sheet(model, latents[0], size, count=count, seed=seed),
        }
    ]
    for k, of_layer in enumerate(latents[1:], start=2):
        rows.append({f"({next(letters)}) {_plane_heading(model, k)}": plane_sheet(model, k)})
        samples = invariance_sheet(model, of_layer, size, columns=8, count=count, seed=seed)
        rows.append({f"({next(letters)}) {_sample_heading(of_layer, count)}": samples})
    note = (
        "Samples are drawn from all activations of a feature over the images, each scaled by its maximum; "
        "grey cells: the feature has fewer activations."
    )
    return _page(rows, note=note)


def _plane_heading(model: DeconvNet, layer: int) -> str:
    below, maps = model.filters[layer - 1].shape[:2]
    return f"Filter planes of layer {layer}: {below} groups, one for each map below, of {maps} planes"


def _sample_heading(latents: Latents, count: int) -> str:
    assert latents.p is not None
    return f"Layer {len(latents.pooling_params)}: {count} samples of each of its {latents.p.shape[1]} features"


def _page(rows: Sequence[Mapping[str, np.ndarray]], width: float = PAGE, note: str = "") -> Figure:
    """Rows of panels, heading → picture [H, W, 3]; the first of several is twice as wide as each of the others."""
    placed, y = [], 0.0
    for row in rows:
        units = len(row) + (len(row) > 1)
        unit, left, height = (width - BETWEEN * (len(row) - 1)) / units, 0.0, 0.0
        for heading, rgb in row.items():
            wide = 2 * unit if left == 0 and len(row) > 1 else unit
            tall = wide * rgb.shape[0] / rgb.shape[1]
            placed.append((heading, rgb, left, y, wide, tall))
            left, height = left + wide + BETWEEN, max(height, tall)
        y += height + HEADING + BELOW
    figure = new_figure(width, y + (0.14 if note else 0))
    for heading, rgb, left, top, wide, tall in placed:
        add_title(figure, left, top + 0.04, heading)
        add_panel(figure, left, top + HEADING, wide, tall).imshow(rgb)
    add_text(figure, 0, y, note, color=GREY, fontsize=6)
    return figure
