"""Drawing of curves: error against ISTA steps, error against λ for four priors (paper, Figs. 7
and 9).

    {"title": "Test error against λ",
     "x": {"label": "λ at inference", "scale": "log"},
     "y": {"label": "test error, %"},
     "curves": [{"label": "ℓ0.5 training, ℓ1 inference",
                 "x": [0.5, 5], "y": [0.9, 0.84], "std": [0.02, 0.03]}, …]}

`scale` is "linear" or "log"; `std`, if it was measured, is drawn as a band of ± one standard
deviation.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from whatwhere.figures import cost, curve_styles, styled

WIDTH = 3.3  # inches: a column of a two-column paper
CHARACTERS = 49  # of a bold title that fit this width
INK = "#222222"


def draw(content: Mapping[str, Any]) -> Figure:
    """The figure of some curves, or of the cost over training if the content has `histories`."""
    return cost(content["histories"]) if "histories" in content else draw_curves(content)


def lowest(curves: list[dict[str, Any]]) -> tuple[float, float]:
    """The lowest point (x, y) of all curves."""
    return min(
        ((x, y) for curve in curves for x, y in zip(curve["x"], curve["y"], strict=True)),
        key=lambda xy: xy[1],
    )


@styled
def draw_dots(dots: Sequence[Mapping[str, Any]]) -> Figure:
    """A line for each number: ours with its spread as a dot, the paper's as a diamond."""
    figure = Figure(figsize=(1.6 * WIDTH, 0.5 + 0.17 * len(dots)), layout="constrained")
    axes = figure.subplots()
    rows = np.arange(len(dots))
    ours, spread, paper = (
        np.array([dot[key] for dot in dots], float) for key in ("ours", "spread", "paper")
    )
    axes.hlines(rows, np.minimum(ours, paper), np.maximum(ours, paper), color="#bbbbbb", lw=0.8)
    axes.errorbar(ours, rows, xerr=spread, fmt="o", ms=3.5, lw=1.2, color="#0072B2", label="ours")
    axes.plot(paper, rows, "D", ms=3.5, mfc="none", mec="#D55E00", label="paper")
    axes.set(yticks=rows, xlabel="test error, %", xlim=(0, None), ylim=(len(dots) - 0.5, -0.5))
    axes.set_yticklabels([dot["label"] for dot in dots], fontsize=6)
    axes.grid(axis="x")
    axes.legend(loc="lower right")
    return figure


@styled
def draw_filters(filters: Mapping[str, np.ndarray]) -> Figure:
    """The filters of layer 1 of several models, [B, H, W] each, a row for each model."""
    figure = Figure(figsize=(2 * WIDTH, 0.55 * len(filters) + 0.1), layout="constrained")
    panels = figure.subplots(len(filters), 1, squeeze=False)[:, 0]
    for axes, (name, each) in zip(panels, filters.items(), strict=True):
        tiles = [np.pad(f / max(np.abs(f).max(), 1e-9), 1, constant_values=np.nan) for f in each]
        axes.imshow(np.concatenate(tiles, 1), cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
        axes.spines[:].set_visible(False)
    return figure


@styled
def draw_invariance(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """The change of the features against the shift and the scale of the image."""
    figure = Figure(figsize=(2 * WIDTH, 0.7 * WIDTH), layout="constrained")
    labels = {"shift": "shift in pixels", "scale": "scale"}
    for axes, (kind, each) in zip(figure.subplots(1, 2, sharey=True), curves.items(), strict=True):
        lines = [(name, values) for name, values in each.items() if name != "x"]
        for (name, values), style in zip(lines, curve_styles(), strict=False):
            axes.plot(each["x"], values, label=name, **style)
        axes.set(xlabel=labels[kind], ylim=(0, None))
        axes.grid()
        axes.legend()
    figure.axes[0].set_ylabel("change of p₂, %")
    return figure


@styled
def draw_curves(content: Mapping[str, Any]) -> Figure:
    """Curves with a ring around the lowest point."""
    curves = content["curves"]
    figure = Figure(figsize=(WIDTH, 0.74 * WIDTH + 0.12 * len(curves)), layout="constrained")
    axes = figure.subplots()
    for curve, style in zip(curves, curve_styles(), strict=False):
        x, y = np.array(curve["x"], float), np.array(curve["y"], float)
        axes.plot(x, y, label=curve["label"], **style)
        if "std" in curve:
            std = np.array(curve["std"], float)
            axes.fill_between(x, y - std, y + std, color=style["color"], alpha=0.15, lw=0)
    axes.plot(
        *lowest(curves),
        "o",
        markersize=8,
        markerfacecolor="none",
        markeredgecolor=INK,
        markeredgewidth=0.9,
    )
    axes.set(
        xlabel=content["x"]["label"], ylabel=content["y"]["label"], xscale=content["x"]["scale"]
    )
    axes.set_title(textwrap.fill(content["title"], CHARACTERS))
    axes.grid()
    if content["x"]["scale"] == "log":
        ticks = sorted({float(x) for curve in curves for x in curve["x"]})
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    if len(curves) > 1:
        figure.legend(loc="outside lower left", ncols=1)
    return figure
