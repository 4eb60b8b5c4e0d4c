"""Curves are drawn as they are: a ring at the lowest point, a title within the figure, no warning."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from reproduction.curves import draw, lowest

pytestmark = pytest.mark.filterwarnings("error")
CONTENT = {
    "title": "Error against λ",
    "x": {"label": "λ", "scale": "log"},
    "y": {"label": "error, %"},
    "curves": [
        {"label": "ℓ1", "x": [1, 2, 5], "y": [1.5, 1.3, 1.2], "std": [0.2, 0.3, 0.1]},
        {"label": "ℓ0.5", "x": [1, 2, 5], "y": [1.1, 0.9, 1.0]},
    ],
}


def test_curves_and_the_ring_around_the_lowest_point_are_drawn() -> None:
    axes = draw(CONTENT).axes[0]
    first, second, ring = axes.lines
    np.testing.assert_array_equal(first.get_ydata(), [1.5, 1.3, 1.2])
    np.testing.assert_array_equal(second.get_xdata(), [1, 2, 5])
    assert (*ring.get_xdata(), *ring.get_ydata()) == lowest(CONTENT["curves"]) == (2, 0.9)
    assert len(axes.collections) == 1, "a band of ± one deviation, where it was measured"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "5"]


def test_histories_are_drawn_as_the_cost_over_training() -> None:
    epochs = [{"layer": 2, "epoch": e, "reconstruction": 3 / e, "penalty": 1.0, "nonzeros": 5.0} for e in (1, 2)]
    assert draw({"histories": {"max": epochs}}).axes[0].get_title(loc="left") == "cost"


def test_a_long_title_stays_within_the_figure() -> None:
    figure: Figure = draw({**CONTENT, "title": "Error against λ, " + "and against much else, " * 3})
    figure.canvas.draw()
    (text,) = [text for text in figure.findobj(Text) if text.get_text().startswith("Error against")]
    title = text.get_window_extent()
    assert figure.bbox.x0 <= title.x0
    assert title.x1 <= figure.bbox.x1
    assert title.y1 <= figure.bbox.y1
