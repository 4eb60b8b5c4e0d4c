"""Views and tiles: which shifts, what a mean of them is, and no seams."""

import torch

from pictures_to_restore import error, model, noisy, picture
from whatwhere.inference import infer
from whatwhere.restoration.views import explain, region_side, shifts
from whatwhere.spec import InferenceSpec, LayerSpec, LineSearch, ModelSpec
from whatwhere.spec.restoration import RestorationSpec

SETTINGS = InferenceSpec(lam=5.0, steps=10, step=LineSearch(momentum=True))


def test_shifts_are_different_and_go_along_the_diagonal_first() -> None:
    assert shifts(2, 1) == [(0, 0)]
    assert shifts(2, 2) == [(0, 0), (1, 1)]
    assert len(set(shifts(2, 4))) == 4
    assert shifts(4, 2) == [(0, 0), (2, 2)]
    assert shifts(1, 3) == [(0, 0)]  # without pooling all views are the same
    assert len(set(shifts(4, 16))) == 16


def test_regions_of_two_layers_repeat_at_the_product_of_their_strides() -> None:
    assert region_side(ModelSpec(layers=(LayerSpec(maps=2, pool_size=2), LayerSpec(maps=2, pool_size=3)))) == 6


def test_a_view_is_the_reconstruction_of_the_moved_image() -> None:
    net, images = model(pool=2, kind="none"), noisy(picture() - 0.5, 0.1)
    mean = explain(net, images, None, SETTINGS, RestorationSpec(views=2), "reference")
    moved = torch.nn.functional.pad(images, (1, 0, 1, 0), mode="replicate")
    first = infer(net, images, SETTINGS, engine="reference").reconstruction
    second = infer(net, moved, SETTINGS, engine="reference").reconstruction[:, :, 1:, 1:]
    assert torch.allclose(mean, (first + second) / 2, atol=1e-6)


def test_the_mean_of_views_is_nearer_to_the_truth() -> None:
    net, truth = model(pool=2, kind="none"), picture() - 0.5
    images = noisy(truth, 0.15)
    one, four = (explain(net, images, None, SETTINGS, RestorationSpec(views=v), "reference") for v in (1, 4))
    assert error(four, truth) < error(one, truth)


def test_tiles_leave_no_seams() -> None:
    net, images = model(kind="none"), noisy(picture(96, 48) - 0.5, 0.1)
    whole = explain(net, images, None, SETTINGS, RestorationSpec(), "reference")
    tiled = explain(net, images, None, SETTINGS, RestorationSpec(tile=48, overlap=24), "reference")
    assert error(tiled, whole) < 0.02 * error(whole, torch.zeros_like(whole))
    steps = (tiled[..., 1:, :] - tiled[..., :-1, :]).abs().mean((0, 1, 3))  # between each row and the next
    true_steps = (whole[..., 1:, :] - whole[..., :-1, :]).abs().mean((0, 1, 3))
    assert (steps - true_steps).abs().max() < 0.1 * true_steps.mean()


def test_tiles_without_a_known_pixel_are_accepted() -> None:
    net, images = model(kind="none"), picture(70, 60) - 0.5
    mask = torch.ones_like(images)
    mask[:, :, :40, :40] = 0
    result = explain(net, images * mask, mask, SETTINGS, RestorationSpec(tile=32, overlap=16), "reference")
    assert result.isfinite().all()
