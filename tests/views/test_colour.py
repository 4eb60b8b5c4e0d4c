"""Shares of colours."""

import torch

from whatwhere.views import Colour


def plain(*colour: float) -> torch.Tensor:
    return torch.tensor(colour).view(1, -1, 1, 1).expand(1, -1, 8, 8)


def test_maps_are_shares_of_colours_that_add_up_to_one() -> None:
    v = torch.rand(4, 3, 10, 10)
    (shares,) = Colour()(v)
    torch.testing.assert_close(shares.sum(1), torch.ones(4, 10, 10))
    (grey,) = Colour()(v[:, :1])
    torch.testing.assert_close(grey.sum(1), torch.ones(4, 10, 10))


def test_a_shuffled_picture_has_the_same_colours_but_other_quarters() -> None:
    v = torch.rand(1, 3, 10, 10) * torch.linspace(0, 1, 10)
    shuffled = v.flatten(2)[:, :, torch.randperm(100)].view_as(v)
    whole = Colour(cells=(1,))
    torch.testing.assert_close(whole.rows(v), whole.rows(shuffled))
    quarters = Colour(cells=(2,))
    assert (quarters.rows(v) - quarters.rows(shuffled)).norm() > 0.1


def test_red_is_nearer_to_orange_than_to_green() -> None:
    red, orange, green = (Colour().rows(plain(*c)) for c in ((1, 0, 0), (1, 0.2, 0), (0, 1, 0)))
    assert (red - orange).norm() < (red - green).norm()


def test_grey_pictures_differ_by_brightness() -> None:
    dark, dim, bright = (Colour().rows(plain(c)) for c in (0.1, 0.12, 0.9))
    assert (dark - dim).norm() < (dark - bright).norm()
