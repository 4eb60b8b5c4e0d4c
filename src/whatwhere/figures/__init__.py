"""The paper's pictures: functions that take a model and latents and return a matplotlib figure.

    from whatwhere import figures

    figure = figures.decomposition(model, images[0], solution.latents[:1])
    figure.savefig("digit.pdf")

matplotlib is imported here and nowhere else.
"""

from whatwhere.errors import MissingExtra

try:
    import matplotlib  # noqa: F401
except ImportError:
    raise MissingExtra("matplotlib", "figures", "Drawing figures") from None

from whatwhere.figures.animation import animation, last_frame, trace
from whatwhere.figures.composite import composite, filters, invariances, planes, reconstructions
from whatwhere.figures.cost import cost, read_history
from whatwhere.figures.curves import curves, draw_content, draw_file, read_curves
from whatwhere.figures.decomposition import decomposition
from whatwhere.figures.gallery import draw, names, run_report
from whatwhere.figures.material import Material, read_run
from whatwhere.figures.pooling_comparison import pooling_comparison
from whatwhere.figures.report import Section, report
from whatwhere.figures.reset import reset
from whatwhere.figures.style import save
from whatwhere.figures.where_map import where_map

__all__ = [
    "Material",
    "Section",
    "animation",
    "composite",
    "cost",
    "curves",
    "decomposition",
    "draw",
    "draw_content",
    "draw_file",
    "filters",
    "invariances",
    "last_frame",
    "names",
    "planes",
    "pooling_comparison",
    "read_curves",
    "read_history",
    "read_run",
    "reconstructions",
    "report",
    "reset",
    "run_report",
    "save",
    "trace",
    "where_map",
]
