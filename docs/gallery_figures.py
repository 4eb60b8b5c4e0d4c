"""Figures of the gallery: those that an example calls `figure`, and those of pyplot.

The functions of `whatwhere.figures` return a figure that pyplot does not know of, so the gallery
would miss it.
"""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def save_figures(block: Any, variables: dict[str, Any], gallery: dict[str, Any]) -> str:
    """Save the figures of a block of code; returns the markup that shows them."""
    named = variables["example_globals"].get("figure")
    drawn = (
        [named]
        if isinstance(named, Figure)
        else [plt.figure(number) for number in plt.get_fignums()]
    )
    paths = []
    for figure, path in zip(drawn, variables["image_path_iterator"], strict=False):
        figure.savefig(path, dpi=150, facecolor="white")
        paths.append(path)
    plt.close("all")
    return str(figure_rst(paths, gallery["src_dir"]))


def _get_sg_image_scraper() -> Any:
    return save_figures
