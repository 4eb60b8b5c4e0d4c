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
from collections.abc import Mapping
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
