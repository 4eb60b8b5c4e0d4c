"""The support of pairs of rows, against all pairs counted one by one."""

import torch
import torch.nn.functional as F

from whatwhere.classification.view_support import SupportSettings, ViewSupport


def views(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [F.normalize(torch.randn(count, d, generator=generator), dim=1) for d in (3, 8)]


def test_support_is_the_mean_share_of_pairs_that_are_less_alike() -> None:
    parts = views(40)
    first, second = torch.triu_indices(40, 40, 1)
    shares = []
    for rows in parts:
        likeness = (rows @ rows.T)[first, second]
        shares.append((likeness[None] < likeness[:, None]).float().mean(1))
    expected = torch.stack(shares).mean(0) ** 2
    found = ViewSupport(parts, SupportSettings(power=2, block=100))(first, second)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_a_pair_that_one_view_alone_finds_alike_has_little_support() -> None:
    """In the second view, the first two rows are opposite."""
    parts = views(40)
    for rows, sign in zip(parts, (1, -1), strict=True):
        rows[1] = sign * rows[0]
    alone, all_views = (
        float(ViewSupport(used)(torch.tensor([0]), torch.tensor([1])))
        for used in (parts, parts[:1])
    )
    assert all_views > 0.98
    assert alone < 0.3


def test_without_pairs_there_is_no_support() -> None:
    none = torch.zeros(0, dtype=torch.long)
    assert ViewSupport(views(5))(none, none).shape == (0,)
