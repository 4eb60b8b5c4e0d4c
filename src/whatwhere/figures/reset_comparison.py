"""Filters and features of several models side by side, for example with and without the reset (paper, Fig. reset)."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from whatwhere.figures.composite import filter_sheet, invariance_sheet
from whatwhere.figures.style import PAGE, add_panel, add_title, new_figure, styled
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


@styled
def reset_comparison(
    solutions: Mapping[str, tuple[DeconvNet, Latents]], height: int, width: int, *, count: int = 16, seed: int = 0
) -> Figure:
    """A column for each model: the filters of layer 1 above, samples of the features of its top layer below.

    solutions       name → model and latents
    height, width   size of the images that were inferred, in pixels
    count           of samples of each feature
    seed            of the choice of samples

    >>> model = ww.load("mnist")
    >>> images = ww.data.load("digits", split="test")[:4]
    >>> latents = ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=10)).latents
    >>> figure = ww.figures.reset_comparison({"mnist": (model, latents)}, 28, 28, count=4)
    """
    gap, heading, letters = 0.25, 0.2, iter("abcdefghijklmnop")
    column = (PAGE - gap * (len(solutions) - 1)) / len(solutions)
    filters_side = 0.5 * column
    sheets = [
        (filter_sheet(model), invariance_sheet(model, latents, height, width, columns=6, count=count, seed=seed))
        for model, latents in solutions.values()
    ]
    below = column * max(samples.shape[0] / samples.shape[1] for _, samples in sheets)
    above = filters_side * max(f.shape[0] / f.shape[1] for f, _ in sheets)
    figure = new_figure(PAGE, above + below + 2 * heading + 0.1)
    for i, (name, (f, samples)) in enumerate(zip(solutions, sheets, strict=True)):
        layer, left = len(list(solutions.values())[i][1].pooling_params), i * (column + gap)
        add_title(figure, left, 0.03, f"({next(letters)}) {name}: filters of layer 1")
        add_panel(figure, left, heading, filters_side, above).imshow(f)
        add_title(
            figure, left, above + heading + 0.08, f"({next(letters)}) {name}: samples of the features of layer {layer}"
        )
        add_panel(figure, left, above + 2 * heading + 0.05, column, below).imshow(samples)
    return figure
