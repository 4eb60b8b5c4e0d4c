"""The network's view, where its weights are installed."""

import pytest
import torch

from whatwhere.views import Network, usual_views


def test_the_usual_views_have_the_network_where_it_is_installed() -> None:
    names = [view.name for view in usual_views()]
    assert names[:2] == ["colour", "edges"]
    assert ("network" in names) == Network.is_installed()


def test_rows_are_the_means_of_the_last_maps() -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="the small network is not installed")
    v = torch.rand(2, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    (maps,) = Network()(v)
    assert maps.shape == (2, 1280, 4, 4)
    expected = torch.nn.functional.normalize(maps.mean((2, 3)), dim=1)
    torch.testing.assert_close(Network().rows(v), expected, atol=1e-5, rtol=1e-4)
    large = torch.rand(1, 3, 300, 260)
    assert Network()(large)[0].shape[2:] == (7, 7)
