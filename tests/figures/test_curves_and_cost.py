"""Curves from result files, and the cost from histories."""

import json

import numpy as np
import pytest
from matplotlib.text import Text

from figures.tiny_model import HISTORY, RESULTS
from whatwhere.errors import RunError
from whatwhere.figures.cost import cost_curves
from whatwhere.figures.curves import curve_set, curves, draw_file, lowest, read_curves


@pytest.fixture
def write(tmp_path):
    def write_results(content) -> object:
        path = tmp_path / "results.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write_results


def test_curves_are_read_in_the_order_of_x(write):
    results = read_curves(write(RESULTS))
    first, second = results.curves
    assert (results.title, results.x_scale, results.y_scale) == ("Error against λ", "log", "linear")
    np.testing.assert_array_equal(first.x, [1, 2, 5])
    np.testing.assert_array_equal(first.y, [1.5, 1.3, 1.2])
    np.testing.assert_array_equal(first.std, [0.2, 0.3, 0.1])
    assert second.std is None
    assert lowest(results) == ("ℓ0.5", 2.0, 0.9)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"x": {}}, "'label' is missing"),
        ({"curves": []}, "empty"),
        ({"curves": [{"label": "a", "x": [1, 2], "y": [1]}]}, "'a' has 2 x, 1 y"),
        ({"y": {"label": "e", "scale": "cubic"}}, "'cubic'"),
        ({"curves": [{"label": "a", "x": ["b"], "y": [1]}]}, "could not convert"),
    ],
)
def test_an_invalid_result_file_raises_an_error_that_names_the_entry(write, change, word):
    with pytest.raises(RunError, match=word):
        read_curves(write({**RESULTS, **change}))


def test_a_missing_or_unparsable_result_file_raises_an_error(write, tmp_path):
    with pytest.raises(RunError, match="not a valid result file"):
        read_curves(write("{"))
    with pytest.raises(RunError, match="no such file"):
        read_curves(tmp_path / "nothing.json")


def test_a_result_file_is_drawn_whether_it_holds_curves_or_histories(write):
    assert draw_file(write(RESULTS)).axes[0].get_title(loc="left") == "Error against λ"
    assert draw_file(write({"histories": {"max": HISTORY}})).axes[0].get_title(loc="left") == "cost"
    with pytest.raises(RunError, match="'reconstruction' is missing"):
        draw_file(write({"histories": {"max": [{"layer": 2, "epoch": 1}]}}))


@pytest.mark.parametrize("width", [3.3, 6.9])
def test_a_long_title_stays_within_the_figure(width):
    figure = curves(curve_set({**RESULTS, "title": "Error against λ, " + "and against much else, " * 3}), width)
    figure.canvas.draw()
    (text,) = [text for text in figure.findobj(Text) if text.get_text().startswith("Error against")]
    title = text.get_window_extent()
    assert figure.bbox.x0 <= title.x0
    assert title.x1 <= figure.bbox.x1
    assert title.y1 <= figure.bbox.y1


def test_the_cost_of_a_layer_is_the_sum_of_its_parts():
    epochs = cost_curves(HISTORY, layer=2)
    np.testing.assert_array_equal(epochs["epoch"], [1, 2])
    np.testing.assert_array_equal(epochs["cost"], [3.0, 2.0])
    np.testing.assert_array_equal(epochs["nonzeros"], [20.0, 10.0])
    assert len(cost_curves(HISTORY, layer=3)["cost"]) == 0
