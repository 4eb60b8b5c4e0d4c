"""The trained model at a glance (paper, Fig. composite): reconstructions, filters, and what the features answer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from whatwhere.figures.sampling import draw_samples, project_samples
from whatwhere.figures.style import GREY, PAGE, place, sheet, styled, title, write
from whatwhere.figures.tiles import GAP, WHITE, columns_for, enlarge, picture, shade, tile
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet

HEADING = 0.2  # inches above every panel


def reconstruction_pairs(model: DeconvNet, images: Tensor, latents: Latents, columns: int = 4) -> np.ndarray:
    """Every image with its reconstruction to the right of it, `columns` pairs a row: [H, W, 3]."""
    assert latents.p is not None
    v_hat = model.reconstruct(latents.p, model.weights(latents.pooling_params, *images.shape[2:]))
    pairs = [
        tile(np.stack([v, r]), 2, between=GAP) for v, r in zip(picture(images, 1.0), picture(v_hat, 1.0), strict=True)
    ]
    return tile(pairs, columns, gap=2, between=WHITE)


def filter_sheet(model: DeconvNet) -> np.ndarray:
    """The filters of layer 1, each by its own largest weight: [H, W, 3]."""
    f = model.filters[0].transpose(0, 1)
    largest = f.abs().amax((1, 2, 3), keepdim=True)
    shown = picture(f / largest.where(largest > 0, torch.ones_like(largest)), 1.0)
    return tile(enlarge(shown, 20), columns_for(len(f)))


def plane_sheet(model: DeconvNet, layer: int = 2, columns: int = 8) -> np.ndarray:
    """The filter planes of a layer, a group for each map below: [H, W, 3].

    Each filter is scaled to the largest weight of all its planes; where two maps are not connected there is grey.
    """
    f, connected = model.filters[layer - 1].cpu().numpy(), model.connectivity[layer - 1].cpu().numpy()
    largest = np.abs(f).max((0, 2, 3), keepdims=True)
    shown = shade(np.where(connected[:, :, None, None], f / np.where(largest > 0, largest, 1), np.nan), 1.0)
    groups = [tile(enlarge(group), columns_for(f.shape[1])) for group in shown]
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
    """For every feature a square of samples, each by its own largest pixel; grey where there are no more: [H, W, 3]."""
    assert latents.p is not None
    side = columns_for(count)
    groups = []
    for feature in range(latents.p.shape[1]):
        samples = draw_samples(latents.p, feature, count, seed)
        pixels = project_samples(model, latents, samples, height, width)
        largest = pixels.abs().amax((1, 2, 3), keepdim=True)
        shown = enlarge(picture(pixels / largest.where(largest > 0, torch.ones_like(largest)), 1.0))
        missing = np.broadcast_to(GAP, (count - len(samples), *shown.shape[1:]))
        groups.append(tile(np.concatenate([shown, missing]), side))
    return tile(groups, columns or columns_for(len(groups)), gap=groups[0].shape[0] // 16, between=WHITE)


@styled
def reconstructions(model: DeconvNet, images: Tensor, latents: Latents, columns: int = 6) -> Figure:
    """Inputs, and beside each its reconstruction from the top layer."""
    sheet_of_pairs = reconstruction_pairs(model, images, latents, columns)
    return _one_panel(
        sheet_of_pairs, PAGE, f"Inputs (left) and reconstructions from layer {len(latents.pooling_params)}"
    )


@styled
def filters(model: DeconvNet, width: float = 2.0) -> Figure:
    """The filters of layer 1."""
    return _one_panel(filter_sheet(model), width, f"The {model.spec.layers[0].maps} filters of layer 1")


@styled
def planes(model: DeconvNet, layer: int = 2) -> Figure:
    """The filter planes of a layer, in one group for each map below."""
    below, maps = model.filters[layer - 1].shape[:2]
    heading = f"Filter planes of layer {layer}: {below} groups, one for each map below, of {maps} planes"
    return _one_panel(plane_sheet(model, layer), PAGE, heading)


@styled
def invariances(
    model: DeconvNet, images: Tensor, latents: Latents, *, columns: int = 8, count: int = 16, seed: int = 0
) -> Figure:
    """Samples of what each feature of the latents' layer answers to, projected down to the pixels."""
    shown = invariance_sheet(model, latents, *images.shape[2:], columns=columns, count=count, seed=seed)
    layer, features = len(latents.pooling_params), latents.p.shape[1]  # type: ignore[union-attr]
    return _one_panel(shown, PAGE, f"Layer {layer}: {count} samples of each of its {features} features")


def _one_panel(shown: np.ndarray, width: float, heading: str) -> Figure:
    height = width * shown.shape[0] / shown.shape[1]
    figure = sheet(width, height + HEADING)
    title(figure, 0.02, 0.03, heading)
    place(figure, 0, HEADING, width, height).imshow(shown)
    return figure


@styled
def composite(
    model: DeconvNet, images: Tensor, latents: Sequence[Latents], *, pairs: int = 16, count: int = 16, seed: int = 0
) -> Figure:
    """All of it on one page; `latents` are those of the images inferred from layer 1, 2, … up to the top.

    A model of one layer has no planes and no second square of samples.
    """
    size, top = tuple(images.shape[2:]), latents[-1]
    first = {
        "(a) inputs and reconstructions": reconstruction_pairs(model, images[:pairs], top[:pairs]),
        "(b) layer 1 filters": filter_sheet(model),
        f"(c) layer 1, {count} samples each": invariance_sheet(model, latents[0], *size, count=count, seed=seed),
    }
    rows = [_row(first, widths=(3.3, 1.65, 1.65))]
    for k, solved in enumerate(latents[1:], start=2):
        letters = "defghijklmnopqrstuvwxyz"[2 * (k - 2) :]
        below, maps = model.filters[k - 1].shape[:2]
        plane = f"({letters[0]}) layer {k} filters: {below} groups, one for each map below, of {maps} planes"
        sample = f"({letters[1]}) layer {k}, {count} samples of each of {maps} features"
        rows.append(_row({plane: plane_sheet(model, k)}))
        rows.append(_row({sample: invariance_sheet(model, solved, *size, columns=8, count=count, seed=seed)}))
    figure = sheet(PAGE, sum(height for height, _ in rows) + 0.18)
    y = 0.0
    for height, panels in rows:
        for panel in panels:
            title(figure, panel.left, y + 0.04, panel.heading)
            place(figure, panel.left, y + HEADING, panel.width, panel.height).imshow(panel.shown)
        y += height
    note = (
        "Samples are drawn from all activations of a feature over the images, each scaled to its own maximum; "
        "grey where a feature has fewer."
    )
    write(figure, 0, y + 0.02, note, color=GREY, fontsize=6)
    return figure


@dataclass(frozen=True)
class _Panel:
    heading: str
    shown: np.ndarray
    left: float
    width: float
    height: float


def _row(panels: dict[str, np.ndarray], widths: Sequence[float] = (PAGE,)) -> tuple[float, list[_Panel]]:
    """Panels of these widths across the page, as high as their pictures: the row's height, and the panels."""
    space = (PAGE - sum(widths)) / max(1, len(widths) - 1)
    left, placed = 0.0, []
    for (heading, shown), width in zip(panels.items(), widths, strict=True):
        placed.append(_Panel(heading, shown, left, width, width * shown.shape[0] / shown.shape[1]))
        left += width + space
    return max(panel.height for panel in placed) + HEADING + 0.08, placed
