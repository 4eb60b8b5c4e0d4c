"""The cost over training, from histories."""

import numpy as np

from figures.tiny_model import HISTORY
from whatwhere.figures.cost import cost_curves


def test_the_cost_of_a_layer_is_the_sum_of_its_parts():
    epochs = cost_curves(HISTORY, layer=2)
    np.testing.assert_array_equal(epochs["epoch"], [1, 2])
    np.testing.assert_array_equal(epochs["cost"], [3.0, 2.0])
    np.testing.assert_array_equal(epochs["nonzeros"], [20.0, 10.0])
    assert len(cost_curves(HISTORY, layer=3)["cost"]) == 0
