"""The trained model on one page (paper, Fig. 2): reconstructions, filters and samples of the
features of every map; and the cost over training (Fig. 6).

A sample is one activation, drawn uniformly from all activations of the feature over the images, not
from the largest. It is projected to the pixels on its own, with the pooling variables of its image
(paper, "Model visualization").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from whatwhere.figures import style
from whatwhere.figures.activations import draw_activations, project
from whatwhere.inference.target import image_tensor
from whatwhere.latents import Background, Latents
from whatwhere.learning import EpochReport
from whatwhere.model import DeconvNet

# inches: above a panel, next to it, and below it
_HEADING = 0.2
_BETWEEN = 0.2
_BELOW = 0.08
# of a feature; of images and reconstructions on the page of a model
_Panel = tuple[str, np.ndarray]
"""A heading and a picture [H, W, 3]."""


def reconstruction_panel(
    model: DeconvNet, images: Tensor, latents: Latents, columns: int = 4
) -> _Panel:
    """Show pairs of an image and, to its right, its reconstruction; `columns` pairs in a row."""
    v_hat = model.at(*images.shape[2:]).decode(latents)
    ink = style.is_ink(images)
    v_hat = v_hat.clamp(min=min(0.0, float(images.min())))  # values that no image has are not drawn
    pairs = [
        style.tile(np.stack([v, r]), 2, between=style.GAP)
        for v, r in zip(
            style.image_to_rgb(images, 1.0, ink=ink),
            style.image_to_rgb(v_hat, 1.0, ink=ink),
            strict=True,
        )
    ]
    heading = f"Inputs (left) and reconstructions from layer {len(latents.pooling_params)}"
    return heading, style.tile(pairs, columns, gap=2, between=style.WHITE)


def filter_panel(model: DeconvNet) -> _Panel:
    f = filters_as_images(model)
    return f"The {len(f)} filters of layer 1", style.tile(
        style.enlarge(style.part_to_rgb(f), 20), style.columns_for(len(f))
    )


def filters_as_images(model: DeconvNet) -> Tensor:
    """Return the filters of layer 1 as images [B, C, K, K]: with ON and OFF channels, ON minus
    OFF."""
    return model.input_stage.inverse(model.filters[0].detach().cpu().transpose(0, 1), Background())


def plane_panel(model: DeconvNet, layer: int = 2, columns: int = 8) -> _Panel:
    """Return the filter planes of a layer, one group for each map below; grey between maps that are
    not connected.

    Each filter is scaled by the largest weight of all its planes.
    """
    f = model.filters[layer - 1].cpu().numpy()
    connected = model.connectivity[layer - 1].cpu().numpy()
    largest = np.abs(f).max((0, 2, 3), keepdims=True)
    rgb = style.shade(
        np.where(connected[:, :, None, None], f / np.where(largest > 0, largest, 1), np.nan), 1.0
    )
    groups = [style.tile(style.enlarge(group), style.columns_for(f.shape[1])) for group in rgb]
    heading = (
        f"Filter planes of layer {layer}: {f.shape[0]} groups, one for each map below, of"
        f" {f.shape[1]} planes"
    )
    return heading, style.tile(
        groups, min(columns, len(groups)), gap=groups[0].shape[0] // 10, between=style.WHITE
    )


def sample_panel(
    model: DeconvNet,
    latents: Latents,
    size: Sequence[int],
    columns: int | None = None,
    samples: int = 16,
) -> _Panel:
    """Return a square of samples for every map, each scaled by its largest pixel; missing samples
    are grey.

    Parameters
    ----------
    size
        height and width of the images
    samples
        of each map
    """
    groups = []
    for feature in range(latents.features.shape[1]):
        drawn = draw_activations(latents.features, feature, samples)
        rgb = style.enlarge(style.part_to_rgb(project(model, latents, drawn, *size)))
        missing = np.broadcast_to(style.GAP, (samples - len(drawn), *rgb.shape[1:]))
        groups.append(style.tile(np.concatenate([rgb, missing]), style.columns_for(samples)))
    heading = f"Layer {len(latents.pooling_params)}: {samples} samples each"
    return heading, style.tile(
        groups,
        columns or style.columns_for(len(groups)),
        gap=groups[0].shape[0] // 16,
        between=style.WHITE,
    )


def reconstructions(model: DeconvNet, images: object, latents: Latents) -> Figure:
    """Draw images, each with its reconstruction from the top layer of the latents to its right.

    Parameters
    ----------
    model
        the model
    images
        pictures as `infer` takes them, such as a tensor [N, C, H, W]
    latents
        latents of the images

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> spec = ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=10)
    >>> latents = ww.infer(model, images, spec).latents
    >>> figure = ww.figures.reconstructions(model, images, latents)
    """
    shown = image_tensor(model, images)
    return page([[reconstruction_panel(model, shown, latents, columns=6)]])


def filters(model: DeconvNet) -> Figure:
    """Draw the filters of layer 1.

    Parameters
    ----------
    model
        the model

    Examples
    --------
    >>> figure = ww.figures.filters(ww.load("mnist"))
    """
    return page([[filter_panel(model)]], width=style.COLUMN)


def composite(model: DeconvNet, images: object, latents: Sequence[Latents]) -> Figure:
    """Draw reconstructions, filters and samples of every layer on one page.

    Parameters
    ----------
    model
        the model
    images
        pictures as `infer` takes them, such as a tensor [N, C, H, W]
    latents
        latents of the images, inferred from layer 1, from layer 2, … up to the top layer

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> spec = ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=5)
    >>> layers = [ww.infer(model, images, spec, [ww.Phase(layer=k)]).latents for k in (1, 2)]
    >>> figure = ww.figures.composite(model, images, layers)
    """
    shown = image_tensor(model, images)
    size = shown.shape[2:]
    pairs = reconstruction_panel(model, shown[:16], latents[-1][:16])
    first = [pairs, filter_panel(model)]
    rows = [[*first, sample_panel(model, latents[0], size)]]
    for k, of_layer in enumerate(latents[1:], start=2):
        rows += [[plane_panel(model, k)], [sample_panel(model, of_layer, size, columns=8)]]
    return page(rows)


@style.styled
def page(rows: Sequence[Sequence[_Panel]], width: float = style.PAGE) -> Figure:
    """Arrange rows of panels; the first of several is twice as wide as each of the others."""
    placed = []
    y = 0.0
    for row in rows:
        units = len(row) + (len(row) > 1)
        unit = (width - _BETWEEN * (len(row) - 1)) / units
        left = 0.0
        height = 0.0
        for heading, rgb in row:
            wide = 2 * unit if left == 0 and len(row) > 1 else unit
            tall = wide * rgb.shape[0] / rgb.shape[1]
            placed.append((heading, rgb, left, y, wide, tall))
            left = left + wide + _BETWEEN
            height = max(height, tall)
        y += height + _HEADING + _BELOW
    figure = Figure(figsize=(width, y))
    for heading, rgb, left, top, wide, tall in placed:
        style.add_heading(figure, left, top + 0.04, heading)
        style.add_panel(figure, left, top + _HEADING, wide, tall).imshow(rgb)
    return figure


_PARTS = {
    "cost": "cost",
    "reconstruction": "reconstruction, λ/2 ‖v̂ − v‖²",
    "penalty": "penalty, Σ|p|ᵅ",
    "nonzeros": "non-zeros, ℓ0",
}
_Epoch = EpochReport | Mapping[str, object]


def cost_curves(history: Sequence[_Epoch], layer: int) -> dict[str, np.ndarray]:
    """Return `epoch`, `cost`, its parts and `nonzeros` while `layer` was trained, per image: [E]
    each."""
    epochs = map(_as_mapping, history)
    rows = [epoch for epoch in epochs if epoch["layer"] == layer]
    curves = {
        name: np.array([row[name] for row in rows], float)
        for name in ("reconstruction", "penalty", "nonzeros")
    }
    curves["epoch"] = np.array([row["epoch"] for row in rows])
    curves["cost"] = curves["reconstruction"] + curves["penalty"]
    return curves


def _as_mapping(epoch: _Epoch) -> Mapping[str, object]:
    """Return the fields of an epoch by name."""
    return epoch.table() if isinstance(epoch, EpochReport) else epoch


@style.styled
def cost(histories: Mapping[str, Sequence[_Epoch]], layer: int = 2) -> Figure:
    """Draw cost, reconstruction, penalty and non-zeros per image against the epoch; one curve for
    each named run.

    Parameters
    ----------
    histories
        name → the epochs of a run, as `EpochReport` or as mappings with its fields
    layer
        the layer whose epochs are drawn

    Examples
    --------
    >>> parts = {"penalty": 4.0, "nonzeros": 20.0}
    >>> epochs = [{"layer": 2, "epoch": e, "reconstruction": 9 / e, **parts} for e in (1, 2)]
    >>> figure = ww.figures.cost({"a run": epochs}, layer=2)
    """
    figure = Figure(figsize=(style.PAGE, 2.0), layout="constrained")
    panels = figure.subplots(1, len(_PARTS))
    for (part, label), axes in zip(_PARTS.items(), panels, strict=True):
        for (name, history), curve_style in zip(
            histories.items(), style.curve_styles(), strict=False
        ):
            curves = cost_curves(history, layer)
            every = max(1, len(curves["epoch"]) // 8)
            axes.plot(curves["epoch"], curves[part], label=name, markevery=every, **curve_style)
        axes.set_title(label)
        axes.set_xlabel(f"epoch of layer {layer}")
        axes.set_ylim(0, 1.1 * axes.dataLim.ymax)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(axis="y", color=style.RULE)
    if len(histories) > 1:
        names = panels[0].get_legend_handles_labels()
        figure.legend(*names, loc="outside lower center", ncols=len(histories))
    return figure
