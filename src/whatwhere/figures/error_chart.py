"""A bar chart of error rates, each with its confidence interval."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from whatwhere.figures.style import CURVES, INK, PAGE, RULE, new_figure, styled


@styled
def error_chart(rates: Mapping[str, tuple[float, float, float]], *, width: float = PAGE) -> Figure:
    """One bar for each name.

    rates   name → (error rate, lower end, upper end of its interval); the interval is drawn as a line
    width   of the figure, in inches

    >>> figure = ww.figures.error_chart({"raw pixels": (0.09, 0.08, 0.10), "layer 2": (0.02, 0.015, 0.025)})
    """
    height = 0.35 * len(rates) + 0.5
    figure, margin = new_figure(width, height), 0.9  # inches left of the bars, for the names
    axes = figure.add_axes((margin / width, 0.42 / height, (width - margin - 0.35) / width, 1 - 0.5 / height))
    for position, (name, (rate, low, high)) in enumerate(rates.items()):
        axes.barh(position, 100 * rate, height=0.6, color=CURVES[0], label=name)
        axes.plot([100 * low, 100 * high], [position, position], color=INK, linewidth=1.2)
        axes.text(100 * high, position, f"  {rate:.2%}", va="center")
    axes.set_yticks(range(len(rates)), list(rates))
    axes.invert_yaxis()
    axes.set_xlim(0, (115 if width > 5 else 130) * max(high for _, _, high in rates.values()))
    axes.set_xlabel("test error, %")
    axes.xaxis.grid(True, color=RULE)
    axes.set_axisbelow(True)
    return figure
