"""Filters adapted to a picture explain it better than those they started from."""

import torch

from pictures_to_restore import model, picture
from whatwhere.inference import infer
from whatwhere.restoration import adapt
from whatwhere.spec import InferenceSpec, LineSearch


def test_adapted_filters_explain_their_picture_better() -> None:
    net, image = model(), picture(48, 48)
    adapted = adapt(net, image[0], tiles=6, engine="reference")
    assert adapted.spec == net.spec
    settings = InferenceSpec(lam=5.0, steps=15, step=LineSearch(momentum=True))
    before, after = (float(infer(m, image, settings, engine="reference").stats.cost[-1]) for m in (net, adapted))
    assert after < 0.95 * before


def test_the_same_seed_gives_the_same_filters() -> None:
    net, image = model(), picture(16, 16)[0]
    first, again, other = (adapt(net, image, tiles=2, seed=seed, engine="reference").filters[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert first.shape == other.shape


def test_a_colour_picture_adapts_a_model_of_one_channel() -> None:
    net = model()
    adapted = adapt(net, picture(16, 16)[0].expand(3, -1, -1), tiles=3, engine="reference")
    assert adapted.filters[0].shape == net.filters[0].shape
