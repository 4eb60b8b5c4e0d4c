"""Filters and features of several models side by side: with and without the reset (paper, Fig. reset)."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from whatwhere.figures.composite import filter_sheet, invariance_sheet
from whatwhere.figures.style import PAGE, place, sheet, styled, title
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


@styled
def reset(
    solved: Mapping[str, tuple[DeconvNet, Latents]], height: int, width: int, *, count: int = 16, seed: int = 0
) -> Figure:
    """A column for each model, named: its layer 1 filters above, samples of its top features below.

    height, width   size of the images that the latents explain
    """
    space, heading, letters = 0.25, 0.2, iter("abcdefghijklmnop")
    column = (PAGE - space * (len(solved) - 1)) / len(solved)
    filters_side = 0.5 * column
    sheets = [
        (filter_sheet(model), invariance_sheet(model, latents, height, width, columns=6, count=count, seed=seed))
        for model, latents in solved.values()
    ]
    below = column * max(samples.shape[0] / samples.shape[1] for _, samples in sheets)
    above = filters_side * max(f.shape[0] / f.shape[1] for f, _ in sheets)
    figure = sheet(PAGE, above + below + 2 * heading + 0.1)
    for i, (name, (f, samples)) in enumerate(zip(solved, sheets, strict=True)):
        layer, left = len(list(solved.values())[i][1].pooling_params), i * (column + space)
        title(figure, left, 0.03, f"({next(letters)}) {name}: filters of layer 1")
        place(figure, left, heading, filters_side, above).imshow(f)
        title(
            figure, left, above + heading + 0.08, f"({next(letters)}) {name}: samples of the features of layer {layer}"
        )
        place(figure, left, above + 2 * heading + 0.05, column, below).imshow(samples)
    return figure
