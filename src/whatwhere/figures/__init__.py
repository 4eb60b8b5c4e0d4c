"""The figures of the paper: functions that take a model and latents and return a matplotlib figure.

    from whatwhere import figures

    figure = figures.decomposition(model, images[0], solution.latents[:1])
    figure.savefig("digit.pdf")

Only this package imports matplotlib.
"""

from whatwhere.errors import MissingExtra

try:
    import matplotlib  # noqa: F401
except ImportError:
    raise MissingExtra("matplotlib", "figures", "Drawing figures") from None

from whatwhere.figures.animation import animation, last_frame, trace
from whatwhere.figures.composite import composite, filters, invariances, planes, reconstructions
from whatwhere.figures.context import FigureContext
from whatwhere.figures.cost import cost
from whatwhere.figures.decomposition import decomposition
from whatwhere.figures.error_chart import error_chart
from whatwhere.figures.pooling_comparison import pooling_comparison
from whatwhere.figures.registry import check_figure, draw, figure_names, run_report
from whatwhere.figures.report import Section, report
from whatwhere.figures.reset_comparison import reset_comparison
from whatwhere.figures.style import curve_styles, save, styled
from whatwhere.figures.where_map import where_map

__all__ = [
    "FigureContext",
    "Section",
    "animation",
    "check_figure",
    "composite",
    "cost",
    "curve_styles",
    "decomposition",
    "draw",
    "error_chart",
    "figure_names",
    "filters",
    "invariances",
    "last_frame",
    "planes",
    "pooling_comparison",
    "reconstructions",
    "report",
    "reset_comparison",
    "run_report",
    "save",
    "styled",
    "trace",
    "where_map",
]
