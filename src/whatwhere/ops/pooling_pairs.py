"""Gaussian pooling in regions of 2 × 2 elements side by side: the operators of `ops.pooling` in fewer operations.

Along an axis of two elements, x = ±½, the weights depend on μ and γ through their product alone:

    q = σ(γ μ) for the second element, σ(-γ μ) for the first,   w = √q

and both gradients of Eqn. poolgrad are multiples of one number, with s_i = w_i Σ_others w e of `pooling_gradient`:

    δ = p̂ (s₂ q₁ - s₁ q₂) / 2,   ∂/∂μ = γ δ,   ∂/∂γ = μ δ

No tensor is broadcast, so that back-propagation has nothing to sum: it takes a third of the time of the general form.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.latents import PoolingParams
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
        products = [w_y * w_x for w_y in self.rows for w_x in self.columns]
        s11, s12, s21, s22 = (w * e for w, e in zip(products, planes(error), strict=True))
        along = ((self.rows, s11 + s12, s21 + s22), (self.columns, s11 + s21, s12 + s22))
        delta = [p / 2 * (s2 * w1.square() - s1 * w2.square()) for (w1, w2), s1, s2 in along]
        stacked = torch.stack(delta, 1)
        return PoolingParams(pooling.gamma * stacked, pooling.mu * stacked)


def pair_weights(pooling: PoolingParams, regions: Regions) -> PairWeights:
    """w = √q along both axes; half the logarithm, whose derivative stays finite where a weight is 0."""
    factors: list[Tensor] = []
    for a in (pooling.mu * pooling.gamma).unbind(1):
        second = F.logsigmoid(a)
        factors += [((second - a) / 2).exp(), (second / 2).exp()]
    return PairWeights(regions, tuple(factors))


def planes(z: Tensor) -> tuple[Tensor, ...]:
    """The elements of every region by their place in it, row by row: [N, B, 2 h, 2 w] → four of [N, B, h, w]."""
    elements: Tensor = F.pixel_unshuffle(z, 2).unflatten(1, (-1, 4))
    return elements.unbind(2)
