"""Every figure can be drawn from a tiny model, in every format, without a warning, in the size of paper."""

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

import whatwhere as ww
from figures.tiny_model import HISTORY, make_tiny
from whatwhere import figures
from whatwhere.figures.animation import frame_figure, trace
from whatwhere.figures.cost import cost_curves
from whatwhere.figures.style import COLUMN, PAGE
from whatwhere.latents import Latents
from whatwhere.spec import InferenceSpec, InputSpec

pytestmark = pytest.mark.filterwarnings("error")


DRAW = {
    "composite": lambda t, m: figures.composite(t.model, t.images, t.layers),
    "reconstructions": lambda t, m: figures.reconstructions(t.model, t.images, t.top),
    "filters": lambda t, m: figures.filters(t.model),
    "decomposition 1": lambda t, m: figures.decomposition(t.model, t.images[0], t.layers[0][:1]),
    "decomposition 2": lambda t, m: figures.decomposition(t.model, t.images[0], t.top[:1]),
    "cost": lambda t, m: figures.cost({"one": HISTORY, "two": HISTORY}),
    "where 1": lambda t, m: figures.where_map(t.model, t.images, t.top, 1, 0),
    "where 2": lambda t, m: figures.where_map(t.model, t.images, t.top, 2, 0),
    "frame": lambda t, m: figures.styled(frame_figure)(
        t.model, t.images[0], trace(t.model, t.images[0], InferenceSpec(steps=2)), 1
    ),
    "decomposition, max": lambda t, m: figures.decomposition(m.model, m.images[0], m.top[:1]),
}


@pytest.mark.parametrize("name", DRAW)
def test_a_figure_draws_within_the_paper(tiny, tiny_max, tmp_path, name):
    figure = DRAW[name](tiny, tiny_max)
    assert isinstance(figure, matplotlib.figure.Figure)
    width, height = figure.get_size_inches()
    assert width <= PAGE
    assert height < 12
    figures.save(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    drawn = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())
    assert min(drawn.x0, drawn.y0) >= -0.02
    assert drawn.x1 <= width + 0.02
    assert drawn.y1 <= height + 0.02


@pytest.mark.parametrize(("ending", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_other_formats_and_the_same_bytes_again(tiny, tmp_path, ending, start):
    for name in ("one", "two"):
        figures.save(figures.decomposition(tiny.model, tiny.images[0], tiny.top[:1]), tmp_path / f"{name}.{ending}")
    one, two = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "two"))
    assert one.startswith(start)
    assert one == two


def test_colour_images_and_signed_models_draw(tmp_path):
    for kwargs in ({"channels": 3}, {"nonnegative": False}):
        one = make_tiny(**kwargs)
        figures.save(figures.composite(one.model, one.images, one.layers), tmp_path / "a.png")
        figures.save(figures.decomposition(one.model, one.images[0], one.top[:1]), tmp_path / "b.png")


@pytest.mark.parametrize(("stage", "channels"), [({"kind": "onoff"}, 3), ({"kind": "highpass", "contrast": 0.5}, 1)])
def test_models_with_input_stages_draw(stage, channels, tmp_path):
    one = make_tiny(input=InputSpec(sigma=2.0, **stage), channels=channels, nonnegative=stage["kind"] == "onoff")
    figures.save(figures.composite(one.model, one.images, one.layers), tmp_path / "a.png")
    figures.save(figures.decomposition(one.model, one.images[0], one.top[:1]), tmp_path / "b.png")
    figures.save(figures.where_map(one.model, one.images, one.top, 1, 0), tmp_path / "c.png")
    snapshots = trace(one.model, one.images[0], InferenceSpec(lam=20.0, steps=2))
    assert figures.animation(one.model, one.images[0], snapshots).startswith(b"GIF89a")


def test_an_image_without_features_draws(tiny, tmp_path):
    empty = Latents(torch.zeros_like(tiny.top.p), tiny.top.pooling_params)
    figures.save(figures.decomposition(tiny.model, tiny.images[0], empty[:1]), tmp_path / "a.png")
    figures.save(figures.where_map(tiny.model, tiny.images, empty, 1, 0), tmp_path / "b.png")
    figures.save(figures.composite(tiny.model, tiny.images, (empty, empty)), tmp_path / "c.png")


def test_maps_that_are_pooled_together_draw(tmp_path):
    spec = ww.ModelSpec(layers=(ww.LayerSpec(maps=4, filter_size=3, pool_maps=2),))
    model, images = ww.DeconvNet(spec), torch.rand(2, 1, 8, 8)
    latents = ww.infer(model, images, InferenceSpec(steps=3), engine="reference").latents
    figures.save(figures.decomposition(model, images[0], latents[:1]), tmp_path / "a.png")
    figures.save(figures.where_map(model, images, latents, 1, 1), tmp_path / "b.png")
    figures.save(figures.composite(model, images, (latents,)), tmp_path / "c.png")


def test_widths_are_a_column_or_a_page(tiny, tiny_max):
    assert DRAW["filters"](tiny, tiny_max).get_size_inches()[0] == pytest.approx(COLUMN)
    assert DRAW["composite"](tiny, tiny_max).get_size_inches()[0] == pytest.approx(PAGE)


def test_the_cost_of_a_layer_is_the_sum_of_its_parts():
    epochs = cost_curves(HISTORY, layer=2)
    np.testing.assert_array_equal(epochs["epoch"], [1, 2])
    np.testing.assert_array_equal(epochs["cost"], [3.0, 2.0])
    np.testing.assert_array_equal(epochs["nonzeros"], [20.0, 10.0])
    assert len(cost_curves(HISTORY, layer=3)["cost"]) == 0
