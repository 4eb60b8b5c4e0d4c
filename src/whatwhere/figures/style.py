"""The style of every figure: sizes, colours, fonts, and helpers that place panels and text.

Figures are made for print: they are as wide as a column or a page of a two-column paper, with 7 point text. Colour is
never the only sign: features also have a number, and curves have different markers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN, PAGE = 3.3, 7.0  # widths in inches
DPI = 200

INK, GREY, RULE, PAPER = "#222222", "#6b6b6b", "#d9d9d9", "#ffffff"
MISSING, EXCESS = "#D55E00", "#5D3A9B"  # orange and purple: negative and positive residuals
# Okabe and Ito's colours, in an order whose neighbours also differ in lightness.
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#222222")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so figures look the same everywhere
    "font.size": 7,
    "text.parse_math": False,  # names of runs may contain dollar signs
    "axes.titlesize": 7,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "savefig.dpi": DPI,
    "pdf.fonttype": 42,  # embed fonts as text
    "svg.fonttype": "none",
    "svg.hashsalt": "whatwhere",  # the same figure gives the same file
}

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that draws a figure: it uses this style, whatever the caller's matplotlib settings are.

    draw  a function that returns a matplotlib figure

    >>> from matplotlib.figure import Figure
    >>> figure = ww.figures.styled(lambda: Figure(figsize=(3.3, 2)))()
    """

    @functools.wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return in_style


def save(figure: Figure, file: Path | IO[bytes], format: str | None = None) -> None:
    """Write a figure. The same figure gives the same bytes.

    figure  a matplotlib figure
    file    a path, or a file that is open for writing bytes
    format  'png', 'pdf', 'svg', …; None takes that of the path's suffix

    >>> import pathlib
    >>> ww.figures.save(ww.figures.filters(ww.load("mnist")), pathlib.Path("filters.png"))
    """
    format = format or (file.suffix[1:] if isinstance(file, Path) else "png")
    no_date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(format)
    with matplotlib.rc_context(RC):
        figure.savefig(file, format=format, metadata=no_date)


def add_panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes without frame or ticks; positions are in inches from the upper left corner of the figure."""
    page_width, page_height = figure.get_size_inches()
    box = (left / page_width, 1 - (top + height) / page_height, width / page_width, height / page_height)
    axes = figure.add_axes(box)
    axes.set_axis_off()
    return axes


def add_text(figure: Figure, left: float, top: float, text: str, **kwargs: Any) -> None:
    """Text with its upper left corner (or as `ha` and `va` say) at this position in inches."""
    page_width, page_height = figure.get_size_inches()
    settings: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": 7, **kwargs}
    figure.text(left / page_width, 1 - top / page_height, text, **settings)


def add_heading(figure: Figure, left: float, top: float, text: str) -> None:
    """The bold heading of a panel."""
    add_text(figure, left, top, text, fontweight="bold")


def add_frame(axes: Axes, colour: Any, width: float = 1.2) -> None:
    """A coloured frame around a panel."""
    axes.set_axis_on()
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(colour)
        spine.set_linewidth(width)


def add_picture(figure: Figure, left: float, top: float, side: float, rgb: np.ndarray, frame: Any = RULE) -> Axes:
    """A picture [H, W, 3] in a framed square."""
    axes = add_panel(figure, left, top, side, side)
    axes.imshow(rgb)
    add_frame(axes, frame, 0.8 if frame is RULE else 1.2)
    return axes


def curve_styles() -> Iterator[dict[str, Any]]:
    """A colour and a marker for each curve in turn, without end: keywords of matplotlib's `plot`.

    >>> next(ww.figures.curve_styles())
    {'color': '#0072B2', 'marker': 'o'}
    """
    return ({"color": c, "marker": m} for c, m in zip(itertools.cycle(CURVES), itertools.cycle(MARKERS), strict=False))
