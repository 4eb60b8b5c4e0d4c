"""Error rates side by side, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from whatwhere.figures.style import CURVES, INK, PAGE, RULE, sheet, styled


@styled
def errors(rates: Mapping[str, tuple[float, float, float]]) -> Figure:
    """A bar for every name: its error rate, and a line from the low to the high end of its interval."""
    height = 0.35 * len(rates) + 0.5
    figure = sheet(PAGE, height)
    axes = figure.add_axes((0.13, 0.42 / height, 0.82, 1 - 0.5 / height))
    for place, (name, (rate, low, high)) in enumerate(rates.items()):
        axes.barh(place, 100 * rate, height=0.6, color=CURVES[0], label=name)
        axes.plot([100 * low, 100 * high], [place, place], color=INK, linewidth=1.2)
        axes.text(100 * high, place, f"  {rate:.2%}", va="center")
    axes.set_yticks(range(len(rates)), list(rates))
    axes.invert_yaxis()
    axes.set_xlim(0, 115 * max(high for _, _, high in rates.values()))
    axes.set_xlabel("test error, %")
    axes.xaxis.grid(True, color=RULE)
    axes.set_axisbelow(True)
    return figure
