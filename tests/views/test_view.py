"""What all views have in common."""

import pytest
import torch

from whatwhere.errors import SpecError
from whatwhere.views import Colour, Edges, Given, MapView, View, as_view
from whatwhere.views.view import at_most, filled

PLAIN = [Colour(), Edges(), Given(function=lambda pictures: pictures.diff(dim=3).abs())]


def pictures(count: int = 5, channels: int = 3) -> torch.Tensor:
    return torch.rand(count, channels, 20, 24, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("view", PLAIN, ids=lambda view: view.name)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_row_does_not_depend_on_other_pictures(view: MapView, channels: int) -> None:
    v = pictures(channels=channels)
    rows = view.rows(v)
    assert rows.dtype == torch.float32
    assert rows.isfinite().all()
    torch.testing.assert_close(view.rows(v[2:3])[0], rows[2])


@pytest.mark.parametrize("view", PLAIN, ids=lambda view: view.name)
def test_different_pictures_have_different_rows_and_alike_ones_alike(view: MapView) -> None:
    v = pictures(2)
    rows = view.rows(torch.cat([v, v[:1] + 0.001]))
    assert (rows[0] - rows[2]).norm() < 0.2 * (rows[0] - rows[1]).norm()


@pytest.mark.parametrize("view", PLAIN, ids=lambda view: view.name)
def test_unknown_pixels_and_flat_pictures_give_finite_rows(view: MapView) -> None:
    v = pictures(3)
    v[0, :, :5] = float("nan")
    v[1] = 0.5
    v[2] = float("nan")
    assert view.rows(v).isfinite().all()


def test_progress_counts_every_picture() -> None:
    done: list[int] = []
    Edges(batch_size=2).rows(pictures(5), done.append)
    assert done == [2, 2, 1]


def test_unknown_pixels_get_the_mean_of_their_channel() -> None:
    v = torch.tensor([[[[1.0, float("nan")], [3.0, 2.0]]]])
    assert filled(v)[0, 0, 0, 1] == 2.0


def test_only_large_pictures_are_reduced() -> None:
    v = pictures()
    assert at_most(v, 24) is v
    assert at_most(v, 12).shape[2:] == (12, 12)


def test_a_view_may_be_named_or_given() -> None:
    assert as_view("colour") == Colour()
    assert as_view(PLAIN[1]) is PLAIN[1]

    def slopes(v: torch.Tensor) -> torch.Tensor:
        return v.diff(dim=3)

    view: View = as_view(slopes)
    assert view.name == "slopes"
    with pytest.raises(SpecError):
        as_view("colours")
    with pytest.raises(SpecError):
        Colour(cells=(0,))
