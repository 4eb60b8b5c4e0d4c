"""The cost over training, its parts, and the number of non-zeros, for one or more runs (paper, Fig. costplot)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from whatwhere.figures.style import PAGE, RULE, curve_styles, styled

PARTS = {
    "cost": "cost",
    "reconstruction": "reconstruction, λ/2 ‖v̂ − v‖²",
    "penalty": "penalty, Σ|p|ᵅ",
    "nonzeros": "non-zeros, ℓ0",
}
Epoch = Mapping[str, Any]


def cost_curves(history: Sequence[Epoch], layer: int) -> dict[str, np.ndarray]:
    """`epoch`, `cost`, its parts and `nonzeros` while `layer` was trained, per image: [E] each."""
    rows = [epoch for epoch in history if epoch["layer"] == layer]
    curves = {name: np.array([row[name] for row in rows], float) for name in ("reconstruction", "penalty", "nonzeros")}
    curves["epoch"] = np.array([row["epoch"] for row in rows])
    curves["cost"] = curves["reconstruction"] + curves["penalty"]
    return curves


@styled
def cost(histories: Mapping[str, Sequence[Epoch]], layer: int = 2) -> Figure:
    """Cost, reconstruction, penalty and non-zeros per image against the epoch; one curve for each named run.

    histories  name → the epochs of a run, as `EpochReport` or as mappings with its fields
    layer      whose epochs are drawn

    >>> epochs = [{"layer": 2, "epoch": e, "reconstruction": 9 / e, "penalty": 4.0, "nonzeros": 20.0} for e in (1, 2)]
    >>> figure = ww.figures.cost({"a run": epochs}, layer=2)
    """
    figure = Figure(figsize=(PAGE, 2.0), layout="constrained")
    panels = figure.subplots(1, len(PARTS))
    for (part, label), axes in zip(PARTS.items(), panels, strict=True):
        for (name, history), curve_style in zip(histories.items(), curve_styles(), strict=False):
            curves = cost_curves(history, layer)
            every = max(1, len(curves["epoch"]) // 8)
            axes.plot(curves["epoch"], curves[part], label=name, markevery=every, **curve_style)
        axes.set_title(label)
        axes.set_xlabel(f"epoch of layer {layer}")
        axes.set_ylim(0, 1.1 * axes.dataLim.ymax)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(axis="y", color=RULE)
    if len(histories) > 1:
        names = panels[0].get_legend_handles_labels()
        figure.legend(*names, loc="outside lower center", ncols=len(histories))
    return figure
