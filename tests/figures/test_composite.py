"""The panels of the composite as arrays: their order and scaling."""

import sys

import numpy as np

from whatwhere.figures.composite import filter_panel, plane_panel, reconstruction_panel, sample_panel
from whatwhere.figures.tiles import GAP, image_to_rgb
from whatwhere.latents import Latents


def test_an_image_is_left_of_its_reconstruction(tiny):
    model, images, top = tiny.model, tiny.images, tiny.top
    v_hat = model.at(11, 13).decode(top)
    _, sheet = reconstruction_panel(model, images, top, columns=3)
    pair_height, pair_width = 11 + 2, 2 * (13 + 1) + 1
    for i in range(len(images)):
        row, column = divmod(i, 3)
        y, x = 2 + row * (pair_height + 2) + 1, 2 + column * (pair_width + 2) + 1
        np.testing.assert_allclose(sheet[y : y + 11, x : x + 13], image_to_rgb(images[i], 1.0, ink=True))
        np.testing.assert_allclose(sheet[y : y + 11, x + 14 : x + 27], image_to_rgb(v_hat[i], 1.0, ink=True))


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
    darkest = [sheet[1 + r * 22 : 22 + r * 22, 1 + c * 22 : 22 + c * 22].min() for r in range(2) for c in range(2)]
    np.testing.assert_allclose(darkest, 0.1)


def test_a_feature_without_activations_is_grey(tiny, monkeypatch):
    monkeypatch.setattr(sys.modules[sample_panel.__module__], "SAMPLES", 4)
    p = tiny.top.p.clone()
    p[:, 3] = 0
    side = 2 * (10 + 1) + 1  # four samples of 10 × 10 pixels
    fourth = slice(1, 1 + side), slice(1 + 3 * (side + 1), 1 + 3 * (side + 1) + side)
    _, without = sample_panel(tiny.model, Latents(p, tiny.top.pooling_params), (11, 13), columns=6)
    assert (without[fourth] == GAP).all()
    _, with_all = sample_panel(tiny.model, tiny.top, (11, 13), columns=6)
    assert (with_all[fourth] != GAP).any()
    assert np.array_equal(
        np.delete(without, range(fourth[1].start, fourth[1].stop), axis=1),
        np.delete(with_all, range(fourth[1].start, fourth[1].stop), axis=1),
    )


def test_the_seed_determines_the_samples(tiny):
    def sheet(seed):
        return sample_panel(tiny.model, tiny.layers[0], (11, 13), seed=seed)[1]

    assert np.array_equal(sheet(0), sheet(0))
    assert not np.array_equal(sheet(0), sheet(1))
