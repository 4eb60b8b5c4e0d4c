"""The cost over training in its parts, with ℓ0, for one or more runs (paper, Fig. costplot)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from whatwhere.errors import RunError
from whatwhere.figures.style import PAGE, RULE, curve_styles, sheet, styled

PARTS = {
    "cost": "cost",
    "reconstruction": "reconstruction, λ/2 ‖v̂ − v‖²",
    "penalty": "penalty, Σ|p|ᵅ",
    "nonzeros": "non-zeros, ℓ0",
}
Epoch = Mapping[str, Any]


def read_history(path: Path) -> list[dict[str, Any]]:
    """The epochs of a run, one JSON object a line."""
    if not path.is_file():
        raise RunError(f"{path} was given as the history of a run; there is no such file")
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise RunError(f"{path} is not a history, one JSON object a line: {error}") from None


def cost_curves(history: Sequence[Epoch], layer: int) -> dict[str, np.ndarray]:
    """epoch, cost and its parts while `layer` was trained, per image: [E] each; the cost is the sum of its parts."""
    rows = [epoch for epoch in history if epoch["layer"] == layer]
    curves = {name: np.array([row[name] for row in rows], float) for name in ("reconstruction", "penalty", "nonzeros")}
    curves["epoch"] = np.array([row["epoch"] for row in rows])
    curves["cost"] = curves["reconstruction"] + curves["penalty"]
    return curves


@styled
def cost(histories: Mapping[str, Sequence[Epoch]], layer: int = 2) -> Figure:
    """Cost, reconstruction, penalty and non-zeros per image against the epoch; a curve a run, named."""
    figure = sheet(PAGE, 2.0)
    figure.set_layout_engine("constrained")
    panels = figure.subplots(1, len(PARTS))
    for (part, label), axes in zip(PARTS.items(), panels, strict=True):
        for (name, history), look in zip(histories.items(), curve_styles(), strict=False):
            curves = cost_curves(history, layer)
            every = max(1, len(curves["epoch"]) // 8)
            axes.plot(curves["epoch"], curves[part], label=name, markevery=every, **look)
        axes.set_title(label)
        axes.set_xlabel(f"epoch of layer {layer}")
        axes.set_ylim(0, 1.1 * axes.dataLim.ymax)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(axis="y", color=RULE)
    if len(histories) > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(histories))
    return figure
