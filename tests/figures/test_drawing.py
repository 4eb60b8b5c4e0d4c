"""Every figure can be drawn from a tiny model, in every format, without a warning, in the size of
paper."""

import colorsys
import io
from dataclasses import replace
from functools import partial

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import whatwhere as ww
from figures.tiny_model import HISTORY, make_tiny
from whatwhere import figures
from whatwhere.engines import convergence
from whatwhere.engines.reference import ista
from whatwhere.figures.activations import gaussians
from whatwhere.figures.animation import Drawing, animation, trace
from whatwhere.figures.composite import (
    cost_curves,
    filter_panel,
    plane_panel,
    reconstruction_panel,
    sample_panel,
)
from whatwhere.figures.decomposition import decompose
from whatwhere.figures.style import COLUMN, GAP, PAGE, RC, feature_colours, image_to_rgb
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.learning import EpochReport
from whatwhere.spec import InferenceSpec, InputSpec, LineSearch

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


@pytest.mark.parametrize(
    ("ending", "start", "date"), [("pdf", b"%PDF", b"CreationDate"), ("svg", b"<?xml", b"dc:date")]
)
def test_other_formats_and_the_same_bytes_again(tiny, tmp_path, ending, start, date):
    for name in ("one", "two"):
        figures.save(figures.filters(tiny.model), tmp_path / f"{name}.{ending}")
    one, two = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "two"))
    assert one.startswith(start)
    assert one == two
    assert date not in one


def test_colour_images_and_signed_models_draw(tmp_path):
    for kwargs in ({"channels": 3}, {"nonnegative": False}):
        one = make_tiny(**kwargs)
        figures.save(figures.composite(one.model, one.images, one.layers), tmp_path / "a.png")
        figures.save(
            figures.decomposition(one.model, one.images[0], one.top[:1]), tmp_path / "b.png"
        )


@pytest.mark.parametrize(
    ("stage", "channels"), [({"kind": "onoff"}, 3), ({"kind": "highpass", "contrast": 0.5}, 1)]
)
def test_models_with_input_stages_draw(stage, channels, tmp_path):
    one = make_tiny(
        input=InputSpec(sigma=2.0, **stage), channels=channels, nonnegative=stage["kind"] == "onoff"
    )
    figures.save(figures.composite(one.model, one.images, one.layers), tmp_path / "a.png")
    figures.save(figures.decomposition(one.model, one.images[0], one.top[:1]), tmp_path / "b.png")
    figures.save(figures.where_map(one.model, one.images, one.top, 1, 0), tmp_path / "c.png")
    assert animation(one.model, one.images[0], InferenceSpec(lam=20.0, steps=2)).startswith(
        b"GIF89a"
    )


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


@pytest.mark.parametrize("layer", [1, 2])
def test_the_cost_is_drawn_from_the_reports_of_a_run(layer):
    reports = tuple(EpochReport(**epoch) for epoch in HISTORY)
    for name, values in cost_curves(reports, layer).items():
        np.testing.assert_array_equal(values, cost_curves(HISTORY, layer)[name])
    drawn = figures.cost({"reports": reports, "mappings": HISTORY}, layer)
    for axes in drawn.axes:
        one, two = axes.lines
        np.testing.assert_array_equal(one.get_xydata(), two.get_xydata())


def test_a_decomposition_without_gaussians_has_no_where(tiny, tiny_max):
    for drawn, title in ((tiny, "what and where"), (tiny_max, "what")):
        figure = figures.decomposition(drawn.model, drawn.images[0], drawn.top[:1])
        headings = [text.get_text().partition(") ")[2] for text in figure.texts]
        assert title in headings
        ellipses = [c for axes in figure.axes for c in axes.collections]
        assert bool(ellipses) == (drawn is tiny)


def test_the_cost_of_a_layer_is_the_sum_of_its_parts():
    epochs = cost_curves(HISTORY, layer=2)
    np.testing.assert_array_equal(epochs["epoch"], [1, 2])
    np.testing.assert_array_equal(epochs["cost"], [3.0, 2.0])
    np.testing.assert_array_equal(epochs["nonzeros"], [20.0, 10.0])
    assert len(cost_curves(HISTORY, layer=3)["cost"]) == 0


# The panels of the composite as arrays: their order and scaling -----------------------------------


def test_an_image_is_left_of_its_reconstruction(tiny):
    model, images, top = tiny.model, tiny.images, tiny.top
    v_hat = model.at(11, 13).decode(top)
    _, sheet = reconstruction_panel(model, images, top, columns=3)
    pair_height, pair_width = 11 + 2, 2 * (13 + 1) + 1
    for i in range(len(images)):
        row, column = divmod(i, 3)
        y, x = 2 + row * (pair_height + 2) + 1, 2 + column * (pair_width + 2) + 1
        np.testing.assert_allclose(
            sheet[y : y + 11, x : x + 13], image_to_rgb(images[i], 1.0, ink=True)
        )
        np.testing.assert_allclose(
            sheet[y : y + 11, x + 14 : x + 27], image_to_rgb(v_hat[i], 1.0, ink=True)
        )


def test_planes_are_grouped_by_the_map_below_and_grey_if_unconnected(tiny):
    model = tiny.model
    below, maps = model.connectivity[1].shape
    _, sheet = plane_panel(model, columns=below)
    pitch = 9 + 1  # a plane of 3×3 is drawn three times as large
    height, width, gap = 3 * pitch + 1, 2 * pitch + 1, 3  # six planes in two columns
    assert sheet.shape[:2] == (height + 2 * gap, below * (width + gap) + gap)
    for c in range(below):
        for b in range(maps):
            row, column = divmod(b, 2)
            y, x = gap + 1 + row * pitch, gap + c * (width + gap) + 1 + column * pitch
            plane = sheet[y : y + 9, x : x + 9]
            assert (plane == GAP).all() == (not model.connectivity[1][c, b])


def test_filters_are_scaled_by_their_largest_weight(tiny):
    _, sheet = filter_panel(tiny.model)
    darkest = [
        sheet[1 + r * 22 : 22 + r * 22, 1 + c * 22 : 22 + c * 22].min()
        for r in range(2)
        for c in range(2)
    ]
    np.testing.assert_allclose(darkest, 0.1)


def test_a_feature_without_activations_is_grey(tiny):
    panel = partial(sample_panel, size=(11, 13), columns=6, samples=4)
    p = tiny.top.p.clone()
    p[:, 3] = 0
    side = 2 * (10 + 1) + 1  # four samples of 10 × 10 pixels
    fourth = slice(1, 1 + side), slice(1 + 3 * (side + 1), 1 + 3 * (side + 1) + side)
    _, without = panel(tiny.model, Latents(p, tiny.top.pooling_params))
    assert (without[fourth] == GAP).all()
    _, with_all = panel(tiny.model, tiny.top)
    assert (with_all[fourth] != GAP).any()
    assert np.array_equal(
        np.delete(without, range(fourth[1].start, fourth[1].stop), axis=1),
        np.delete(with_all, range(fourth[1].start, fourth[1].stop), axis=1),
    )


# The contributions of features add up to the reconstruction, and each has the colour of its feature


@pytest.mark.parametrize("layer", [1, 2])
def test_the_contributions_add_up_at_every_stage(tiny, layer):
    latents = tiny.layers[layer - 1][2:3]
    parts = decompose(tiny.model, latents, 11, 13)
    weights = tiny.model.at(11, 13).weights(latents.pooling_params)
    stages = tiny.model.at(11, 13).descend(latents.p, weights)
    np.testing.assert_allclose(parts.pixels.sum(0), stages[0][0], atol=1e-6)
    for k in range(1, layer + 1):
        np.testing.assert_allclose(parts.pooled[k - 1].sum(0), stages[k][0], atol=1e-6)
        z = weights[k - 1].unpool(stages[k])
        np.testing.assert_allclose(parts.unpooled[k - 1].sum(0), z[0], atol=1e-6)


def test_a_contribution_contains_one_feature_only(tiny):
    latents = tiny.top[:1]
    parts = decompose(tiny.model, latents, 11, 13)
    active = [b for b in range(6) if latents.p[0, b].any()]
    assert list(parts.active) == active
    for a, b in enumerate(active):
        np.testing.assert_array_equal(parts.pooled[-1][a, b], latents.p[0, b])
        assert np.delete(parts.pooled[-1][a], b, axis=0).max() == 0
    assert parts.shares.sum() == pytest.approx(1)


def test_pixels_of_one_feature_have_its_hue(tiny):
    p = torch.zeros_like(tiny.top.p[:1])
    p[0, 4] = tiny.top.p[:, 4].amax(0)
    parts = decompose(tiny.model, Latents(p, tiny.top[:1].pooling_params), 11, 13)
    shown = parts.coloured()
    hue = colorsys.rgb_to_hsv(*feature_colours(6)[4])[0]
    amount = parts.pixels.sum((0, 1))
    assert list(parts.active) == [4]
    assert (amount > 0.05).any()
    for y, x in np.argwhere(amount > 0.05):
        assert colorsys.rgb_to_hsv(*shown[y, x])[0] == pytest.approx(hue, abs=1e-6)


def test_saturation_grows_with_the_contribution(tiny):
    parts = decompose(tiny.model, tiny.layers[0][:1], 11, 13)
    whole = parts.pixels.sum((0, 1))
    darkness = 3 - parts.coloured().sum(-1)
    assert darkness[whole == 0].max(initial=0) == 0
    assert np.corrcoef(whole.ravel(), darkness.ravel())[0, 1] > 0.9


def test_an_image_without_features_has_no_contributions(tiny):
    latents = Latents(torch.zeros_like(tiny.top.p[:1]), tiny.top[:1].pooling_params)
    parts = decompose(tiny.model, latents, 11, 13)
    assert len(parts.active) == 0
    assert (parts.coloured() == 1).all()


def test_contributions_of_a_model_with_an_input_stage_are_in_pixels():
    """They add up to the reconstruction without the low-pass that the stage took off."""
    one = make_tiny(input=InputSpec(kind="onoff", sigma=2.0, contrast=0.5))
    latents = one.top[:1]
    parts = decompose(one.model, latents, 11, 13)
    assert parts.pixels.shape == (len(parts.active), 1, 11, 13)
    whole = one.model.at(11, 13).decode(latents) - latents.background.low
    np.testing.assert_allclose(parts.pixels.sum(0), whole[0].double().numpy(), atol=1e-5)


def test_an_ellipse_lies_where_its_feature_draws(tiny):
    """Each Gaussian on the image is in the middle of what its feature draws, to a few pixels."""
    latents = tiny.layers[0][:1]
    parts = decompose(tiny.model, latents, 11, 13)
    for feature in parts.active:
        alone = Latents(torch.zeros_like(latents.p), latents.pooling_params)
        j = latents.p[0, feature].flatten().argmax()
        alone.p[0, feature].view(-1)[j] = 1.0
        ((x, y),) = (
            gaussians(tiny.model, tiny.images[:1], alone, 1, int(feature))
            .in_pixels(tiny.model, 1)
            .centre
        )
        drawn = tiny.model.at(11, 13).decode(alone)[0, 0].numpy()
        rows, columns = np.mgrid[:11, :13]
        if drawn[1:-1, 1:-1].sum() < 0.99 * drawn.sum():
            continue  # cut off by the border
        assert abs((drawn * columns).sum() / drawn.sum() - x) < 1
        assert abs((drawn * rows).sum() / drawn.sum() - y) < 1


# The animation shows the steps of inference -------------------------------------------------------


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("kind", ["none", "onoff"])
def test_the_trace_is_the_inference(kind, momentum):
    one = make_tiny(input=InputSpec(kind=kind, sigma=2.0))
    spec, image, done = (
        InferenceSpec(lam=20.0, steps=5, step=LineSearch(momentum=momentum)),
        one.images[3],
        [],
    )
    with torch.no_grad():
        steps = trace(one.model, image, spec, done.append)
    assert len(steps) == 6
    assert done == [1] * 5
    for count in (0, 2, 5):
        solution = infer(one.model, image[None], replace(spec, steps=count), engine="reference")
        latents, costs, nonzeros = steps[count]
        torch.testing.assert_close(latents.p, solution.features)
        torch.testing.assert_close(one.model.at(11, 13).decode(latents), solution.reconstruction)
        assert sum(costs) == pytest.approx(float(solution.stats.cost[-1, 0]), rel=1e-5)
        assert nonzeros == int(solution.stats.nonzeros[-1, 0])


def test_the_trace_ends_where_inference_converges(tiny, monkeypatch):
    monkeypatch.setattr(convergence, "BLOCK", 7)
    spec, image, done = InferenceSpec.coding(lam=20.0, steps=200), tiny.images[3], []
    solution = infer(tiny.model, image[None], spec, engine="reference")
    taken = len(solution.stats.step)
    assert 7 < taken < 200, "one block, or all of them, would show nothing"
    with torch.no_grad():
        steps = trace(tiny.model, image, spec, done.append)
    costs = [sum(step.cost) for step in steps]
    assert len(costs) == taken + 1
    assert sum(done) == 200, "what convergence spares counts as done"
    torch.testing.assert_close(steps[-1].latents.p, solution.features)
    assert costs[-1] == pytest.approx(float(solution.stats.cost[-1, 0]), rel=1e-5)


@pytest.mark.parametrize(("steps", "frames"), [(0, 1), (4, 5), (12, 11)])
def test_the_gif_shows_the_first_steps_and_the_last(tiny, steps, frames):
    spec, image = InferenceSpec(lam=20.0, steps=steps), tiny.images[0]
    picture = Image.open(io.BytesIO(animation(tiny.model, image, spec)))
    assert (picture.n_frames, picture.info["loop"]) == (frames, 0)
    picture.seek(frames - 1)
    with torch.no_grad(), matplotlib.rc_context(RC):
        traced = trace(tiny.model, image, spec, lambda steps: None)
        last, file = Drawing(tiny.model, image, traced).show(steps), io.BytesIO()
        last.savefig(file, format="png", dpi=100)
    exact = np.asarray(Image.open(file).convert("RGB")).astype(int)
    assert np.abs(np.asarray(picture.convert("RGB")) - exact).max() <= 24, (
        "the palette changes colours only slightly"
    )


def test_an_animation_leaves_the_number_of_threads_as_it_was(tiny, monkeypatch):
    used = []
    step = ista.step

    def noted(*args):
        used.append(torch.get_num_threads())
        return step(*args)

    monkeypatch.setattr(ista, "step", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        animation(tiny.model, tiny.images[0], InferenceSpec(lam=20.0, steps=2))
        assert (used, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(before)


def test_a_frame_shows_the_reconstruction_and_what_it_lacks(tiny):
    with torch.no_grad():
        steps = trace(
            tiny.model, tiny.images[0], InferenceSpec(lam=20.0, steps=4), lambda steps: None
        )
        drawing = Drawing(tiny.model, tiny.images[0], steps)
        shown, texts = [], []
        for now in (0, 4):
            figure = drawing.show(now)
            shown.append([axes.images[0].get_array() for axes in figure.axes if axes.images])
            texts.append([text.get_text() for text in figure.texts])
    assert [len(pictures) for pictures in shown] == [4, 4]
    assert np.ptp(shown[0][1]) == 0, "nothing is reconstructed at first"
    assert np.ptp(shown[1][1]) > 0
    assert shown[0][2].min() < shown[1][2].min(), "the residual shrinks"
    assert texts[0][-1] == "0 non-zero features"
    assert texts[1][-1] == f"{steps[4].nonzeros} non-zero features"
    assert "after 4 steps" in texts[1]
    maps = tiny.model.spec.layers[-1].maps
    active = int(steps[4].latents.features[0].flatten(1).any(1).sum())
    assert f"{active} of {maps} maps" in texts[1], "a map with several features counts once"
    ends = [line.get_xydata()[-1].tolist() for line in figure.axes[-1].lines]
    assert ends == [[4, cost] for cost in steps[4].cost for _ in range(2)]
