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
    raise MissingExtra("matplotlib", "Drawing figures") from None

from whatwhere.figures.activations import where_map
from whatwhere.figures.animation import animation
from whatwhere.figures.composite import composite, cost, filters, reconstructions
from whatwhere.figures.decomposition import decomposition
from whatwhere.figures.run_figures import RunFigures, Section, report
from whatwhere.figures.style import curve_styles, save, styled

__all__ = [
    "RunFigures",
    "Section",
    "animation",
    "composite",
    "cost",
    "curve_styles",
    "decomposition",
    "filters",
    "reconstructions",
    "report",
    "save",
    "styled",
    "where_map",
]
