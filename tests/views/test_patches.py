"""Fisher vectors of patches, compared with gradients by autograd."""

import math

import pytest
import torch
from torch import Tensor

from whatwhere.views import Patches
from whatwhere.views.patches import Mixture

ONE = Patches(scales=1)


def waves(angle: float, side: int = 96) -> Tensor:
    """A picture of waves of 6 pixels."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    along = x * math.cos(angle) + y * math.sin(angle)
    return (0.5 + 0.4 * torch.sin(2 * math.pi * along / 6))[None, None]


def mixture() -> Mixture:
    generator = torch.Generator().manual_seed(0)
    shares = torch.tensor([0.2, 0.3, 0.5])
    centres, variances = torch.randn(2, 3, 4, generator=generator).unbind()
    return Mixture(torch.zeros(4), torch.eye(4), shares, centres, variances.abs() + 0.3)


def log_likelihood(patches: Tensor, shares: Tensor, centres: Tensor, deviations: Tensor) -> Tensor:
    """The mean log likelihood of patches [m, D], by torch's distributions."""
    parts = torch.distributions.Normal(centres, deviations).log_prob(patches[:, None])
    return (parts.sum(2) + shares.log()).logsumexp(1).mean()


def test_fisher_vectors_are_gradients_of_the_likelihood() -> None:
    """By centres and deviations, in units of their Fisher information."""
    known = mixture()
    patches = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    centres = known.centres.clone().requires_grad_()
    deviations = known.variances.sqrt().requires_grad_()
    log_likelihood(patches, known.shares, centres, deviations).backward()
    unit = known.variances.sqrt() / known.shares.sqrt()[:, None]
    vector = known.fisher_vectors(patches[None])[0]
    torch.testing.assert_close(vector[3:15], (unit * centres.grad).flatten())
    of_deviations = unit * deviations.grad / math.sqrt(2)
    torch.testing.assert_close(vector[15:], of_deviations.flatten())


def test_patches_of_the_mixture_itself_have_no_fisher_vector() -> None:
    known = mixture()
    generator = torch.Generator().manual_seed(2)
    which = torch.multinomial(known.shares, 40_000, replacement=True, generator=generator)
    noise = torch.randn(40_000, 4, generator=generator)
    drawn = known.centres[which] + known.variances.sqrt()[which] * noise
    assert float(known.fisher_vectors(drawn[None]).abs().max()) < 0.03


def test_patches_have_no_mean_and_at_most_unit_length() -> None:
    (patches,) = ONE.patches(torch.rand(2, 3, 50, 70))
    columns = patches.unflatten(1, (3, 36)).double()
    assert float(columns.mean(2).abs().max()) < 1e-5
    assert 0.5 < float(patches.norm(dim=1).max()) < 1
    (flat,) = ONE.patches(torch.full((1, 1, 40, 40), 0.7))
    assert float(flat.abs().max()) < 1e-5


def test_directions_of_waves_matter_and_their_places_do_not() -> None:
    rows = ONE.rows(torch.cat([waves(0.3), waves(0.3).roll(3, 3), waves(1.2)]))
    same, other = ((rows[0] - row).norm() for row in rows[1:])
    assert same < 0.3 * other


@pytest.mark.parametrize("cells", [(1,), (1, 2)])
def test_a_row_does_not_depend_on_other_pictures(cells: tuple[int, ...]) -> None:
    view = Patches(cells=cells)
    v = torch.rand(3, 1, 20, 30)
    rows = view.rows(v)
    assert rows.shape == (3, 1568 * sum(count**2 for count in cells))
    torch.testing.assert_close(rows[2], view.rows(v[2:])[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(rows.square().sum(1), torch.full((3,), float(rows.shape[1] // 1568)))


def test_grey_pictures_are_colour_pictures_without_colour() -> None:
    grey = torch.rand(2, 1, 40, 40)
    torch.testing.assert_close(
        Patches().rows(grey), Patches().rows(grey.expand(-1, 3, -1, -1)), atol=1e-3, rtol=0
    )
