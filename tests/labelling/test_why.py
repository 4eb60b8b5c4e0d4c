"""Explanations: the hot part is where a picture is like the labelled ones, in words and drawn."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from whatwhere.classification.joined_describer import JoinedDescriber
from whatwhere.labelling.descriptions import Description
from whatwhere.labelling.why import (
    Near,
    WhySettings,
    choose_others,
    explain,
    heat_map,
    part_words,
    sentence,
)
from whatwhere.views import Colour


def scene(colour: tuple[float, float, float], top: int, left: int) -> torch.Tensor:
    """A grey picture with a spot of a colour."""
    picture = torch.full((3, 24, 24), 0.5)
    picture[:, top : top + 6, left : left + 6] = torch.tensor(colour)[:, None, None]
    return picture


RED, BLUE = (0.8, 0.1, 0.1), (0.1, 0.1, 0.8)


def test_the_part_that_is_like_the_labelled_pictures_is_hot() -> None:
    """A red spot at the top left, near pictures with red spots elsewhere, unlike blue ones."""
    images = torch.stack([scene(RED, 1, 1), scene(RED, 9, 9), scene(RED, 15, 3), scene(BLUE, 9, 9)])
    view = Colour(side=24)
    count = view.rows(images).shape[1]
    describe = JoinedDescriber((view,), (count,), (3, 24, 24))
    description = Description("colour", view.rows(images), describe)
    shown = [Near(1, 0.9, "rose"), Near(2, 0.8, "rose")]
    why = explain(description, images, shown)
    assert why.words == ("Most like these 2 labelled pictures (2 × rose): the dark red top left.")
    assert why.features == []
    drawn = np.array(Image.open(io.BytesIO(why.drawn))).astype(int)
    spot, rest = drawn[12:84, 12:84], drawn[120:, 120:]
    assert spot[..., 0].mean() > 3 * spot[..., 2].mean(), "it keeps its colour"
    assert np.ptp(rest, axis=2).max() == 0, "the rest is grey"


def test_evidence_is_the_product_with_the_difference_of_both_groups() -> None:
    maps = torch.rand(4, 5, 3, 3, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(maps.mean((2, 3)), dim=1)
    direction = unit[1:3].mean(0) - unit[3]
    expected = torch.einsum("dhw,d->hw", maps[0], direction).clamp(min=0)
    torch.testing.assert_close(heat_map([maps], 2, (3, 3)), expected / expected.max())


@pytest.mark.parametrize(
    ("top", "left", "words"),
    [(9, 9, "centre"), (0, 9, "top"), (9, 18, "right"), (18, 0, "bottom left")],
)
def test_a_part_is_named_by_its_place(top: int, left: int, words: str) -> None:
    heat = torch.zeros(24, 24)
    heat[top : top + 6, left : left + 6] = 1
    assert part_words(heat, torch.full((1, 24, 24), 0.5)) == f"the {words}"
    assert part_words(heat, 0.5 - 0.4 * heat[None]) == f"the dark {words}"
    assert part_words(heat, 0.5 + 0.4 * heat[None]) == f"the bright {words}"


def test_the_edge_and_the_whole_picture_have_names() -> None:
    heat = torch.ones(24, 24)
    flat = torch.full((1, 24, 24), 0.5)
    assert part_words(heat, flat) == "the whole picture"
    heat[3:21, 3:21] = 0
    assert part_words(heat, flat) == "the edge"


def test_one_is_compared_with_the_nearest_of_other_classes() -> None:
    near = [Near(n, 1 - n / 10, name) for n, name in enumerate("aababcb")]
    shown, others = choose_others(near, WhySettings(nearest=2, others=2))
    assert [one.row for one in shown] == [0, 1]
    assert [one.row for one in others] == [2, 4]
    assert sentence(near[:1], "the edge") == "Most like this labelled picture (a): the edge."
    assert sentence(near[1:4], "x").startswith("Most like these 3 labelled pictures (2 × a and b)")
