"""Small distortions: amounts, determinism, what stays the same, errors."""

import pytest
import torch

from whatwhere.classification.metric import distort
from whatwhere.classification.settings import Distortions
from whatwhere.errors import SpecError

NONE = {"rotation": 0.0, "shear": 0.0, "scale": 0.0, "shift": 0.0, "elastic": 0.0}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blob(height: int, width: int, row: float, column: float) -> torch.Tensor:
    """A smooth spot, [1, 1, H, W]."""
    y, x = torch.arange(height)[:, None] - row, torch.arange(width)[None] - column
    return (-(y**2 + x**2) / 8).exp()[None, None]


def centre(images: torch.Tensor) -> torch.Tensor:
    """The mean row and column of the ink, [N, 2]."""
    ink = images[:, 0]
    rows, columns = torch.arange(ink.shape[1]) + 0.0, torch.arange(ink.shape[2]) + 0.0
    mass = ink.sum((1, 2))
    return torch.stack([(ink.sum(2) * rows).sum(1) / mass, (ink.sum(1) * columns).sum(1) / mass], 1)


def test_without_any_amount_images_stay_as_they_are() -> None:
    images = torch.rand(3, 2, 9, 12, generator=generator())
    torch.testing.assert_close(distort(images, Distortions(**NONE), generator()), images)


def test_the_same_seed_distorts_the_same_way() -> None:
    images = torch.rand(4, 1, 11, 11, generator=generator())
    how = Distortions(brightness=0.3)
    torch.testing.assert_close(
        distort(images, how, generator(5)), distort(images, how, generator(5)), rtol=0, atol=0
    )
    assert not torch.equal(distort(images, how, generator(5)), distort(images, how, generator(6)))


def test_leaving_out_one_kind_does_not_change_the_draws_of_the_others() -> None:
    image = blob(40, 40, 20, 20).expand(50, 1, 40, 40)
    alone = centre(distort(image, Distortions(**{**NONE, "shift": 0.1}), generator()))
    with_gain = centre(
        distort(image, Distortions(**{**NONE, "shift": 0.1, "brightness": 0.5}), generator())
    )
    torch.testing.assert_close(alone, with_gain)


@pytest.mark.parametrize(("height", "width"), [(40, 40), (30, 60)])
def test_shifts_are_shares_of_the_height_and_the_width(height: int, width: int) -> None:
    image = blob(height, width, height / 2, width / 2).expand(300, 1, height, width)
    moved = centre(distort(image, Distortions(**{**NONE, "shift": 0.1}), generator())) - centre(
        image
    )
    most = torch.tensor([0.1 * height, 0.1 * width])
    assert (moved.abs() <= most + 0.01).all()
    assert (moved.abs().amax(0) > 0.95 * most).all()


@pytest.mark.parametrize(("height", "width"), [(41, 41), (31, 61)])
def test_turns_are_in_degrees_whatever_the_shape_of_the_frame(height: int, width: int) -> None:
    away = 10.0
    image = blob(height, width, (height - 1) / 2, (width - 1) / 2 + away).expand(
        300, 1, height, width
    )
    moved = centre(distort(image, Distortions(**{**NONE, "rotation": 30}), generator()))
    offset = moved - torch.tensor([(height - 1) / 2, (width - 1) / 2])
    torch.testing.assert_close(offset.norm(dim=1), torch.full((300,), away), rtol=0.01, atol=0.05)
    angle = torch.rad2deg(torch.atan2(offset[:, 0], offset[:, 1])).abs()
    assert angle.max() < 30.5
    assert angle.max() > 28


def test_brightness_changes_all_values_and_colour_each_channel() -> None:
    images = torch.full((200, 3, 4, 4), 0.5)
    brighter = distort(images, Distortions(**NONE, brightness=0.4), generator())[:, :, 0, 0] / 0.5
    torch.testing.assert_close(brighter, brighter[:, :1].expand(-1, 3))
    assert 0.6 <= float(brighter.min()) < 0.65
    assert 1.35 < float(brighter.max()) <= 1.4
    tinted = distort(images, Distortions(**NONE, colour=0.4), generator())[:, :, 0, 0] / 0.5
    assert float((tinted[:, 0] - tinted[:, 1]).abs().max()) > 0.3


def test_beyond_the_frame_the_border_repeats() -> None:
    image = torch.full((20, 1, 8, 8), 0.7)
    torch.testing.assert_close(
        distort(image, Distortions(shift=0.5, elastic=0.2), generator()), image
    )


def test_an_elastic_bend_moves_places_by_different_amounts() -> None:
    spots = torch.cat([blob(40, 40, 10, 10), blob(40, 40, 30, 30)]).expand(2, 1, 40, 40)
    how = Distortions(**{**NONE, "elastic": 0.05})
    moved = torch.stack(
        [centre(distort(spot[None], how, generator()))[0] - centre(spot[None])[0] for spot in spots]
    )
    assert float((moved[0] - moved[1]).abs().max()) > 0.3
    # a bicubic curve may overshoot its control points a little
    assert float(moved.abs().max()) < 3 * 0.05 * 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rotation": -1.0}, "rotation"),
        ({"scale": 1.5}, "scale"),
        ({"copies": 1}, "copies"),
        ({"shear": "a"}, "shear"),
    ],
)
def test_impossible_amounts_raise(change: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Distortions(**change)
