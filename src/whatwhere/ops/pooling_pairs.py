"""Gaussian pooling in regions of 2 × 2 elements side by side: the operators of `ops.pooling` in fewer operations.

Along an axis of two elements, x = ±½, the weights depend on μ and γ through their product alone:

    q = σ(γ μ) for the second element, σ(-γ μ) for the first,   w = √q

and both gradients of Eqn. poolgrad are multiples of one number (`formulas.pair_moment`).
No tensor is broadcast, so that back-propagation has nothing to sum: it takes a third of the time of the general form.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.latents import PoolingParams
from whatwhere.ops import formulas
from whatwhere.ops.pooling import Regions, Weights

Pair = tuple[Tensor, Tensor]


def has_pairs(regions: Regions) -> bool:
    """Whether all regions are 2 × 2 elements, side by side, inside the map."""
    return regions.size == (1, 2, 2) and regions.tiling and regions.inside(1) and regions.inside(2)


@dataclass(frozen=True)
class PairWeights(Weights):
    """The weights of 2 × 2 regions: of the first and second row, and of the first and second column, [N, B, h, w]."""

    @property
    def rows(self) -> Pair:
        return self.factors[0], self.factors[1]

    @property
    def columns(self) -> Pair:
        return self.factors[2], self.factors[3]

    def unpool(self, p: Tensor) -> Tensor:
        """z(i) = w(i) p(j)."""
        elements = [w_y * w_x for w_y in (p * w for w in self.rows) for w_x in self.columns]
        return F.pixel_shuffle(torch.stack(elements, 2).flatten(1, 2), 2)

    def pool(self, z: Tensor) -> Tensor:
        """p(j) = Σ_i w(i) z(i)."""
        (w1, w2), (e11, e12, e21, e22) = self.columns, planes(z)
        return self.rows[0] * (w1 * e11 + w2 * e12) + self.rows[1] * (w1 * e21 + w2 * e22)

    def gradient(self, error: Tensor, p: Tensor, pooling: PoolingParams) -> PoolingParams:
        """∂/∂μ and ∂/∂γ from the error at z and the features p̂ (Eqn. poolgrad)."""
        (y1, y2), (x1, x2), (e11, e12, e21, e22) = self.rows, self.columns, planes(error)
        rows = formulas.pair_moment(y1, y2, x1 * e11 + x2 * e12, x1 * e21 + x2 * e22)
        columns = formulas.pair_moment(x1, x2, y1 * e11 + y2 * e21, y1 * e12 + y2 * e22)
        first = torch.stack([p * rows, p * columns], 1)
        return PoolingParams(*formulas.theta_gradient(pooling.mu, pooling.gamma, first, 0.0))


def pair_weights(pooling: PoolingParams, regions: Regions) -> PairWeights:
    """w = √q along both axes."""
    (y1, x1), (y2, x2) = (w.unbind(1) for w in formulas.pair_weights(pooling.mu, pooling.gamma))
    return PairWeights(regions, (y1, y2, x1, x2))


def planes(z: Tensor) -> tuple[Tensor, ...]:
    """The elements of every region by their place in it, row by row: [N, B, 2 h, 2 w] → four of [N, B, h, w]."""
    elements: Tensor = F.pixel_unshuffle(z, 2).unflatten(1, (-1, 4))
    return elements.unbind(2)
